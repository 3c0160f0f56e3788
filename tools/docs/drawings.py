"""Drawings of the documentation, made from text when the site is built.

docs/drawings/NAME.dot is Graphviz's language; what all share (fonts, boxes, lines) is put before
it here. docs/drawings/NAME.lanes is who tells whom what, from top to bottom:

    lanes: island | coordinator | others
    island, others: train
    island -> coordinator: Ready
    coordinator -> island, others: Reduce
    island <-> others: pseudo-gradients
    --- committed

Colours are names that site.css gives a value for light pages and one for dark ones.
"""

import html
import re
import subprocess

# The widest of the usual fonts: whatever a reader has, the text fits its box.
FONT = "DejaVu Sans"
STYLE = f"""
graph [bgcolor=transparent fontname="{FONT}" fontsize=12 nodesep=0.35 ranksep=0.45 pad=0.1
  color=gray style="rounded,filled" fillcolor=white]
node [shape=box style="rounded,filled" fontname="{FONT}" fontsize=12 color=gray fillcolor=white
  margin="0.16,0.09" height=0.3]
edge [fontname="{FONT}" fontsize=11 color=gray arrowsize=0.7]
"""
# The colours that drawings may use, and their variables of site.css.
COLOURS = {
    "gray": "line",
    "white": "none",
    "lightblue": "blue",
    "palegreen": "green",
    "moccasin": "yellow",
    "mistyrose": "red",
}


def drawing(folder, name):
    """The drawing called `name` as an HTML figure."""
    dot = folder / f"{name}.dot"
    lanes = folder / f"{name}.lanes"
    if dot.exists():
        svg = _by_graphviz(dot)
    elif lanes.exists():
        svg = _by_lanes(lanes.read_text(encoding="utf-8"))
    else:
        raise ValueError(f"there is no docs/drawings/{name}.dot or .lanes")
    return f'<figure class="drawing">{svg}</figure>'


def _by_graphviz(path):
    text = path.read_text(encoding="utf-8")
    title = re.match(r"// (.*)\n", text)
    if not title:
        raise ValueError(f"{path.name} does not begin with a line `// what it shows`")
    text = re.sub(r"(digraph|graph)( \w+)? \{", lambda m: m[0] + STYLE, text, count=1)
    try:
        made = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ValueError("the program `dot` is missing (Debian's package graphviz)") from error
    if made.returncode != 0 or "Error" in made.stderr:
        raise ValueError(f"dot on {path.name}: {made.stderr.strip()}")
    svg = made.stdout[made.stdout.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<title>.*?</title>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[^"]*"| font-family="[^"]*"', "", svg)
    for colour, name in COLOURS.items():
        value = "none" if name == "none" else f"var(--drawing-{name})"
        svg = svg.replace(f'fill="{colour}"', f'fill="{value}"')
        svg = svg.replace(f'stroke="{colour}"', f'stroke="{value}"')
    svg = svg.replace('="transparent"', '="none"')
    other = re.search(r'(?:fill|stroke)="(?!none|var)([^"]*)"', svg)
    if other:
        raise ValueError(f"{path.name}: the colour {other[1]} is none of {', '.join(COLOURS)}")
    width, height = (float(n) for n in re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg).groups())
    head = re.search(r'viewBox="([^"]*)"', svg)[1]
    body = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
    return _svg(head, 4 / 3 * width, title[1], "\n".join(line for line in body.split("\n") if line))


def _svg(view, width, title, body):
    said = html.escape(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" style="max-width:{width:.0f}px"'
        f' role="img" aria-label="{said}"><title>{said}</title>{body}</svg>'
    )


LETTER = 7.3  # pixels of a letter of 12 pixels in the widest font
LINE = 30
MESSAGE = re.compile(r"(?P<of>[^:<>-]+?) *(?P<arrow><->|->) *(?P<to>[^:]+): *(?P<text>.*)")


def _by_lanes(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    title = lines.pop(0)
    if not title.startswith("// "):
        raise ValueError("a drawing of lanes begins with a line `// what it shows`")
    names = [name.strip() for name in lines.pop(0).removeprefix("lanes:").split("|")]
    events = [_event(line, names) for line in lines]
    x = _places(names, events)
    width = x[-1] + _margin(names, events, len(names) - 1)
    bottom = 40 + LINE * len(events) + 10
    out = []
    for name, at in zip(names, x):
        half = len(name) * LETTER / 2 + 10
        out.append(f'<line class="lane" x1="{at:.0f}" y1="32" x2="{at:.0f}" y2="{bottom}"/>')
        out.append(f'<rect class="box" x="{at - half:.0f}" y="4" width="{2 * half:.0f}" height="28" rx="5"/>')
        out.append(_text(at, 23, name))
    for number, event in enumerate(events):
        out += _drawn(event, x, width, 40 + LINE * number + LINE / 2)
    return _svg(f"0 0 {width:.0f} {bottom + 6}", width, title.removeprefix("// "), "".join(out))


def _event(line, names):
    """("rule", None, text), ("note", lanes, text) or ("message", from, text, to, both ways)."""
    if line.startswith("---"):
        return ("rule", None, line.strip("- "))
    message = MESSAGE.fullmatch(line)
    try:
        if message:
            to = [names.index(name.strip()) for name in message["to"].split(",")]
            return ("message", names.index(message["of"]), message["text"], to, message["arrow"] == "<->")
        lanes, _, said = line.partition(":")
        return ("note", [names.index(lane.strip()) for lane in lanes.split(",")], said.strip())
    except ValueError as error:
        raise ValueError(f"`{line}`: {error}; the lanes are {', '.join(names)}") from error


def _margin(names, events, lane):
    """What stands beside an outer lane: half of its widest text."""
    notes = [len(event[2]) / 2 + 1 for event in events if event[0] == "note" and lane in event[1]]
    return max([len(names[lane]) / 2 + 1] + notes) * LETTER + 16


def _places(names, events):
    """Where lanes stand, so that what is written between and on them has room."""
    x = [_margin(names, events, 0)]
    for lane in range(1, len(names)):
        gap = [len(names[lane - 1]) / 2 + len(names[lane]) / 2 + 6]
        for event in events:
            if event[0] == "note":
                gap.append(len(event[2]) / 2 * len({lane - 1, lane} & set(event[1])) + 4)
            if event[0] == "message":
                for to in event[3]:
                    if {event[1], to} == {lane - 1, lane}:
                        gap.append(len(event[2]) + 4)
        x.append(x[-1] + max(gap) * LETTER)
    return x


def _text(x, y, text, kind=""):
    attribute = f' class="{kind}"' if kind else ""
    return f'<text{attribute} x="{x:.0f}" y="{y:.0f}" text-anchor="middle">{html.escape(text)}</text>'


def _drawn(event, x, width, y):
    if event[0] == "rule":
        line = f'<line class="rule" x1="8" y1="{y}" x2="{width - 8:.0f}" y2="{y}"/>'
        return [line, _label(width / 2, y + 4, event[2], "said")]
    if event[0] == "note":
        half = len(event[2]) * LETTER / 2 + 8
        out = []
        for at in (x[lane] for lane in event[1]):
            box = f'x="{at - half:.0f}" y="{y - 11}" width="{2 * half:.0f}" height="22" rx="4"'
            out += [f'<rect class="note" {box}/>', _text(at, y + 4, event[2])]
        return out
    out = []
    of = x[event[1]]
    for to in (x[lane] for lane in event[3]):
        head = 7 if to > of else -7
        out.append(f'<line class="message" x1="{of:.0f}" y1="{y + 8}" x2="{to:.0f}" y2="{y + 8}"/>')
        out.append(f'<path class="head" d="M{to:.0f} {y + 8} l{-head} -4 v8 z"/>')
        if event[4]:
            out.append(f'<path class="head" d="M{of:.0f} {y + 8} l{head} -4 v8 z"/>')
    nearest = x[event[3][0]]
    out.append(_label((of + nearest) / 2, y + 2, event[2], "said"))
    return out


def _label(x, y, text, kind):
    """Text on a ground of its own, so that no line runs through it."""
    if not text:
        return ""
    half = len(text) * LETTER / 2 + 2
    ground = f'<rect class="ground" x="{x - half:.0f}" y="{y - 12:.0f}" width="{2 * half:.0f}" height="15"/>'
    return ground + _text(x, y, text, kind)
