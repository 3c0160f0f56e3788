// What the chat page makes of Markdown, without a page; called as chat_functions.js is, which says how.
(async (load) => {
  const wrong = [];
  const same = (seen, wanted, what) => { const [a, b] = [JSON.stringify(seen), JSON.stringify(wanted)]; if (a !== b) wrong.push(`${what}: ${a}, not ${b}`); };
  const {parseMarkdown} = await load("markdown.js");
  const {parseInline, safeLink} = await load("inline.js");

  // A tree in short: **a** is <strong a>, a link is <link address text>.
  const inline = (nodes) => nodes.map((node) => node.kind === "text" ? node.text : node.kind === "code" ? `<code ${node.text}>` : node.kind === "break" ? "<br>" : `<${node.kind} ${node.href ? node.href + " " : ""}${inline(node.children)}>`).join("");
  const block = (one) => {
    switch (one.kind) {
      case "code": return `code(${one.language}: ${one.text})`;
      case "quote": return `quote(${one.children.map(block).join(" ")})`;
      case "list": return `${one.start === null ? "ul" : `ol${one.start}`}${one.isTight ? "" : " loose"}(${one.items.map((item) => item.map(block).join(" ")).join(" | ")})`;
      case "table": return `table(${[one.head, ...one.rows].map((row) => row.map(inline).join(", ")).join(" / ")})`;
      case "rule": return "rule";
      default: return `${one.kind === "heading" ? `h${one.level}` : "p"}(${inline(one.children)})`;
    }
  };
  const line = (text, wanted) => same(inline(parseInline(text)), wanted, text);
  const blocks = (text, ...wanted) => same(parseMarkdown(text).map(block), wanted, text);

  // --- Within a line
  line("a *b* **c** ***d*** __e__ _f_", "a <em b> <strong c> <em <strong d>> <strong e> <em f>");
  line("**a *b* c**", "<strong a <em b> c>");
  line("snake_case_name and 2*3*4", "snake_case_name and 2<em 3>4");
  line("2 * 3 * 4, **open", "2 * 3 * 4, **open");
  line("~~gone~~ ~kept~", "<strike gone> ~kept~");
  line("`a*b*` ``x ` y`` `open", "<code a*b*> <code x ` y> `open");
  line("\\*a\\* \\(x\\)", "*a* \\(x\\)");
  line("one\ntwo  \nthree\\\nfour", "one<br>two<br>three<br>four");
  line("[a *b*](https://x.y/z_(1) \"title\")", "<link https://x.y/z_(1) a <em b>>");
  line("see https://x.y/a_b_c. (http://x.y/(1))", "see <link https://x.y/a_b_c https://x.y/a_b_c>. (<link http://x.y/(1) http://x.y/(1)>)");
  line("<https://x.y> <mailto:a@b.c> <b>x</b>", "<link https://x.y https://x.y> <link mailto:a@b.c a@b.c> <b>x</b>");
  line("[a] [b](c) ](d) [", "[a] b ](d) [");
  line("[a [b](https://x.y) c](https://z.y)", "[a <link https://x.y b> c](https://z.y)");
  line("![p](https://x.y/p.png) ![](https://x.y/q.png)", "<link https://x.y/p.png p> <link https://x.y/q.png image>");
  line("&lt; <script>alert(1)</script>", "&lt; <script>alert(1)</script>");

  // --- What may be followed
  for (const href of ["https://a", "HTTP://a", "mailto:a@b"]) same(safeLink(href), href, "a link");
  for (const href of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\nscript:x", " https://a", "\u0001https://a", "data:text/html,x", "vbscript:x", "file:///etc", "//a.b", "/a", "#a", "blob:https://a", ""]) same(safeLink(href), null, `no link: ${href}`);
  line("[a](javascript:alert(1)) [b](&#106;avascript:x) <javascript:x>", "a b <javascript:x>");
  line("[a](java\\script:x)", "a");

  // --- Blocks
  blocks("# a\n## b ##\n####### c", "h1(a)", "h2(b)", "p(####### c)");
  blocks("a\nb\n\nc", "p(a<br>b)", "p(c)");
  blocks("a\n***\nb\n---\n- - -", "p(a)", "rule", "p(b)", "rule", "rule");
  blocks("```js x\na\n\n  b\n```\nc", "code(js: a\n\n  b)", "p(c)");
  blocks("````\n```\n````", "code(: ```)");
  blocks("~~~\nstill open", "code(: still open)");
  blocks("```a`b```", "p(<code a`b>)");
  blocks("> a\nb\n> - c\n\nd", "quote(p(a<br>b) ul(p(c)))", "p(d)");
  blocks("- a\n- b\n  - c\n    more\n* d", "ul(p(a) | p(b) ul(p(c<br>more)))", "ul(p(d))");
  blocks("3. a\n4. b\n\nend", "ol3(p(a) | p(b))", "p(end)");
  blocks("1) a\n2. b", "ol1(p(a))", "ol2(p(b))");
  blocks("- a\n\n- b", "ul loose(p(a) | p(b))");
  blocks("1. a\n\n   b\n\n   ```\n   x\n    y\n   ```\n2. c", "ol1 loose(p(a) p(b) code(: x\n y) | p(c))");
  blocks("1. a\n    - b\n    - c\n2. d", "ol1(p(a) ul(p(b) | p(c)) | p(d))");
  blocks("It was\n1986. A year\n-5 degrees", "p(It was<br>1986. A year<br>-5 degrees)");
  blocks("a\n- b", "p(a)", "ul(p(b))");
  blocks("| a | b |\n|:-:|---|\n| `x|y` | \\| |\n| 1 |\nend", "table(a, b / <code x|y>, | / 1, )", "p(end)");
  blocks("a | b\nc", "p(a | b<br>c)");
  blocks("a\r\nb\tc", "p(a<br>b    c)");
  blocks("<div>\n\n<script>x</script>", "p(<div>)", "p(<script>x</script>)");
  blocks(""), blocks("\n \n");

  // --- While it grows: any beginning of a text is Markdown, and blocks that are finished stay as they are.
  const whole = "# A\n\nb **c** `d` [e](https://f)\n\n- g\n  1. h\n\n| i | j |\n|---|---|\n| k | l |\n\n```\nm\n```\n\n> n\n\no";
  for (let i = 0; i <= whole.length; ++i) {
    try { parseMarkdown(whole.slice(0, i)); } catch (error) { wrong.push(`the first ${i} letters: ${error}`); }
  }
  same(parseMarkdown(whole).map((one) => one.source).join("\n\n"), whole, "the sources of all blocks");

  // --- Texts that are made to take long: what recurses or looks back without a bound hangs here.
  const evil = ["*a ", "**a* ", "[", "![](", "[a](", ">", "`", "` `` ", "* ", "- a\n", "| a |\n", "<https://", "_a_b", "~~a", "[a](http://b)", "1. ", "> - ", "a\n\n", "\\", "https://a)", "((((", "*_"];
  for (const piece of evil) {
    try { parseMarkdown(piece.repeat(30000)); } catch (error) { wrong.push(`many ${JSON.stringify(piece)}: ${error}`); }
  }
  return wrong;
})
