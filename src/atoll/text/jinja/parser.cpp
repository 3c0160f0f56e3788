#include "atoll/text/jinja/parser.h"

#include <algorithm>
#include <array>

#include "atoll/text/jinja/expressions.h"

namespace atl::text::jinja {

namespace {

constexpr std::size_t kMaxTemplateBytes = 4U << 20;

// What encloses a statement, as far as it matters to it.
struct Context {
  bool in_loop = false;
};

class Parser : private ExpressionParser {
 public:
  Parser(std::string_view source, std::string_view origin) : ExpressionParser(source, origin) {
    slot_of("{block output}");  // no name has braces, so that no variable is this one
  }

  Tree run() {
    tree_.body = body({});
    return std::move(tree_);
  }

 private:
  Body body(std::initializer_list<std::string_view> ends, Context context = {}) {
    const Level level(*this);
    Body made;
    while (true) {
      const int line = now().line;
      if (is(TokenKind::kText)) {
        Statement statement{.action = Action::kText, .line = line, .text = take().text};
        made.push_back(std::move(statement));
      } else if (is(TokenKind::kPrintBegin)) {
        take();
        Statement statement{.action = Action::kPrint, .line = line, .text = {}};
        statement.expressions.push_back(tuple(false, true));
        if (!is(TokenKind::kPrintEnd)) fail(now().line, "expected \"}}}}\", found {}", describe());
        take();
        made.push_back(std::move(statement));
      } else if (is(TokenKind::kBlockBegin)) {
        take();
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return is_name(end); })) {
          return made;
        }
        made.push_back(statement(context));
      } else if (ends.size() == 0) {
        return made;
      } else {
        fail(line, "the template ends where {{% {} %}} was expected", *(ends.end() - 1));
      }
    }
  }

  Statement statement(Context context) {
    const int line = now().line;
    const std::string tag = expect_name();
    Statement made{.action = Action::kText, .line = line, .text = {}};
    if (tag == "if") return if_statement(line, context);
    if (tag == "for") return for_statement(line, context);
    if (tag == "set") return set_statement(line);
    if (tag == "macro") return macro_statement(line);
    if (tag == "call") return call_statement(line);
    if (tag == "filter") return filter_statement(line);
    if (tag == "with") return with_statement(line);
    if (tag == "generation") {
      tree_.has_generation = true;
      made.action = Action::kGeneration;
      return closed(std::move(made), "endgeneration");
    }
    if (tag == "break" || tag == "continue") {
      if (!context.in_loop) fail(line, "{{% {} %}} outside of a loop", tag);
      expect_end();
      made.action = tag == "break" ? Action::kBreak : Action::kContinue;
      return made;
    }
    static constexpr std::array<std::string_view, 10> kKnown = {
        "include", "import",     "from",  "extends", "block",
        "do",      "autoescape", "trans", "debug",   "print"};
    const bool known = std::find(kKnown.begin(), kKnown.end(), tag) != kKnown.end();
    fail(line, "{{% {} %}} {}", tag, known ? "is not supported" : "is no tag that opens anything");
  }

  // The rest of a tag, its body, and the tag that closes it.
  Statement closed(Statement made, std::string_view end, Context context = {}) {
    expect_end();
    made.bodies.push_back(body({end}, context));
    take();
    expect_end();
    return made;
  }

  Statement if_statement(int line, Context context) {
    Statement made{.action = Action::kIf, .line = line, .text = {}};
    while (true) {
      made.expressions.push_back(tuple(false, false));
      expect_end();
      made.bodies.push_back(body({"elif", "else", "endif"}, context));
      const std::string tag = take().text;
      if (tag == "elif") continue;
      expect_end();
      if (tag == "else") {
        made.bodies.push_back(body({"endif"}, context));
        take();
        expect_end();
      } else {
        made.bodies.emplace_back();
      }
      return made;
    }
  }

  Statement for_statement(int line, Context context) {
    Statement made{.action = Action::kFor, .line = line, .text = {}};
    made.targets.push_back(target(false));
    check_loop_target(made.targets.front());
    if (!skip_name("in")) fail(now().line, "expected \"in\", found {}", describe());
    made.expressions.push_back(tuple(false, false));
    if (skip_name("if")) made.expressions.push_back(expression());
    made.is_recursive = skip_name("recursive");
    expect_end();
    made.bodies.push_back(body({"else", "endfor"}, {.in_loop = true}));
    const bool has_else = take().text == "else";
    expect_end();
    if (has_else) {
      made.bodies.push_back(body({"endfor"}, context));
      take();
      expect_end();
    }
    return made;
  }

  void check_loop_target(const Target& target) const {
    if (!target.is_tuple && tree_.names[target.name_slot] == "loop") {
      fail(target.line, "the name \"loop\" cannot be a loop's own variable");
    }
    for (const Target& part : target.parts) check_loop_target(part);
  }

  Target single_target(bool with_attribute) {
    Target made;
    made.line = now().line;
    if (skip_operator("(")) {
      made = target(with_attribute);
      expect_operator(")");
      return made;
    }
    const std::string name = expect_name();
    for (const char* literal : {"true", "True", "false", "False", "none", "None"}) {
      if (name == literal) fail(made.line, "\"{}\" cannot be assigned to", name);
    }
    made.name_slot = slot_of(name);
    if (with_attribute && skip_operator(".")) {
      made.attribute = expect_name();
    } else {
      assigned_.insert(name);
    }
    return made;
  }

  Target target(bool with_attribute) {
    const Level level(*this);
    Target first = single_target(with_attribute);
    if (!is_operator(",")) return first;
    Target made;
    made.line = first.line;
    made.is_tuple = true;
    made.parts.push_back(std::move(first));
    while (skip_operator(",")) {
      if (is_operator(")")) break;
      made.parts.push_back(single_target(with_attribute));
    }
    return made;
  }

  Statement set_statement(int line) {
    Statement made{.action = Action::kSet, .line = line, .text = {}};
    made.targets.push_back(target(true));
    if (skip_operator("=")) {
      made.expressions.push_back(tuple(false, true));
      expect_end();
      return made;
    }
    made.action = Action::kSetBlock;
    made.expressions.push_back(filters_of_block());
    return closed(std::move(made), "endset");
  }

  // The filters that a block's output goes through; the output stands in a slot of its own.
  ExpressionPtr filters_of_block() {
    auto made = make(Operation::kName, now().line);
    made->name_slot = kBlockOutputSlot;
    while (skip_operator("|")) made = filter(std::move(made));
    return made;
  }

  Statement filter_statement(int line) {
    Statement made{.action = Action::kFilter, .line = line, .text = {}};
    auto output = make(Operation::kName, line);
    output->name_slot = kBlockOutputSlot;
    output = filter(std::move(output));
    while (skip_operator("|")) output = filter(std::move(output));
    made.expressions.push_back(std::move(output));
    return closed(std::move(made), "endfilter");
  }

  Statement with_statement(int line) {
    Statement made{.action = Action::kWith, .line = line, .text = {}};
    while (!is(TokenKind::kBlockEnd)) {
      if (!made.targets.empty()) expect_operator(",");
      made.targets.push_back(single_target(false));
      expect_operator("=");
      made.expressions.push_back(expression());
    }
    return closed(std::move(made), "endwith");
  }

  Statement macro_statement(int line) {
    Statement made{.action = Action::kMacro, .line = line, .text = {}};
    auto macro = std::make_shared<Macro>();
    macro->name = expect_name();
    assigned_.insert(macro->name);
    made.targets.push_back({.line = line, .name_slot = slot_of(macro->name), .attribute = {}});
    read_parameters(*macro, line);
    return macro_body(std::move(made), std::move(macro), "endmacro");
  }

  // {% call(parameters) macro(arguments) %} and its body, which is a macro called "caller".
  Statement call_statement(int line) {
    Statement made{.action = Action::kCall, .line = line, .text = {}};
    auto caller = std::make_shared<Macro>();
    caller->name = "caller";
    if (is_operator("(")) read_parameters(*caller, line);
    made.expressions.push_back(expression());
    if (made.expressions.front()->operation != Operation::kCall) {
      fail(line, "{{% call %}} needs the call of a macro");
    }
    return macro_body(std::move(made), std::move(caller), "endcall");
  }

  void read_parameters(Macro& read, int line) {
    Macro* macro = &read;
    macros_.push_back(macro);
    expect_operator("(");
    while (!is_operator(")")) {
      if (!macro->parameters.empty()) expect_operator(",");
      macro->parameters.push_back(expect_name());
      assigned_.insert(macro->parameters.back());
      macro->slots.push_back(slot_of(macro->parameters.back()));
      if (skip_operator("=")) {
        macro->defaults.push_back(expression());
      } else if (!macro->defaults.empty()) {
        fail(line, "a parameter without a default after one with a default");
      }
    }
    take();
    macros_.pop_back();
  }

  // The rest of the tag, and the body of `macro`.
  Statement macro_body(Statement made, std::shared_ptr<Macro> macro, std::string_view end) {
    macros_.push_back(macro.get());
    Statement closed_macro = closed(std::move(made), end);
    macros_.pop_back();
    macro->varargs_slot = slot_of("varargs");
    macro->kwargs_slot = slot_of("kwargs");
    macro->caller_slot = slot_of("caller");
    macro->body = std::move(closed_macro.bodies.front());
    closed_macro.bodies.clear();
    closed_macro.macro = std::move(macro);
    return closed_macro;
  }
};

}  // namespace

Tree parse(std::string_view source, std::string_view origin) {
  if (source.size() > kMaxTemplateBytes) {
    throw user_error("{}: the template has {} bytes; {} are allowed", origin, source.size(),
                     kMaxTemplateBytes);
  }
  return Parser(source, origin).run();
}

}  // namespace atl::text::jinja
