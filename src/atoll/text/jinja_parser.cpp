#include "atoll/text/jinja_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <map>
#include <set>

#include "atoll/base/error.h"
#include "atoll/text/jinja_builtins.h"
#include "atoll/text/jinja_lexer.h"

namespace atl::text::jinja {

namespace {

constexpr std::size_t kMaxTemplateBytes = 4U << 20;

// What encloses a statement, as far as it matters to it.
struct Context {
  bool in_loop = false;
};

class Parser {
 public:
  Parser(std::string_view source, std::string_view origin)
      : origin_(origin), tokens_(tokenize(source, origin)) {
    slot_of("{block output}");  // no name has braces, so that no variable is this one
  }

  Tree run() {
    tree_.body = body({});
    return std::move(tree_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(int line, fmt::format_string<Args...> format, Args&&... args) const {
    throw user_error("{}: line {}: {}", origin_, line,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  // --- tokens

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return at_ + 1 < tokens_.size() ? std::move(tokens_[at_++]) : tokens_[at_]; }
  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_operator(std::string_view text) const {
    return is(TokenKind::kOperator) && now().text == text;
  }
  bool is_name(std::string_view text) const { return is(TokenKind::kName) && now().text == text; }
  bool skip_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view text) {
    if (!is_name(text)) return false;
    take();
    return true;
  }
  std::string describe() const {
    switch (now().kind) {
      case TokenKind::kBlockEnd:
        return "the end of the tag";
      case TokenKind::kPrintEnd:
        return "the end of the expression";
      case TokenKind::kEnd:
        return "the end of the template";
      default:
        return fmt::format("\"{}\"", now().text);
    }
  }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail(now().line, "expected \"{}\", found {}", text, describe());
  }
  void expect_end() {
    if (!is(TokenKind::kBlockEnd)) fail(now().line, "expected \"%}}\", found {}", describe());
    take();
  }
  std::string expect_name() {
    if (!is(TokenKind::kName)) fail(now().line, "expected a name, found {}", describe());
    return take().text;
  }

  // --- the tree

  std::size_t slot_of(const std::string& name) {
    const auto [at, added] = slots_.emplace(name, tree_.names.size());
    if (added) tree_.names.push_back(name);
    return at->second;
  }

  ExpressionPtr make(Operation operation, int line, std::vector<ExpressionPtr> parts = {}) {
    auto made = std::make_unique<Expression>();
    made->operation = operation;
    made->line = line;
    made->parts = std::move(parts);
    measure(*made);
    return made;
  }
  template <typename... Parts>
  ExpressionPtr make_of(Operation operation, int line, Parts... parts) {
    std::vector<ExpressionPtr> all;
    (all.push_back(std::move(parts)), ...);
    return make(operation, line, std::move(all));
  }
  void measure(Expression& made) const {
    for (const auto& part : made.parts) {
      if (part != nullptr) made.depth = std::max(made.depth, part->depth + 1);
    }
    for (const auto& [name, part] : made.named) made.depth = std::max(made.depth, part->depth + 1);
    if (made.depth > kMaxTreeDepth) {
      fail(made.line, "an expression nested more than {} levels deep", kMaxTreeDepth);
    }
  }
  ExpressionPtr constant(Value value, int line) {
    auto made = make(Operation::kConstant, line);
    made->value = std::move(value);
    return made;
  }

  // Counts levels while they are being read, when no tree is there yet.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxTreeDepth) {
        parser_.fail(parser_.now().line, "nested more than {} levels deep", kMaxTreeDepth);
      }
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  // --- expressions, loosest binding first

  ExpressionPtr expression(bool with_condition = true) {
    const Level level(*this);
    auto left = disjunction();
    if (!with_condition) return left;
    while (is_name("if")) {
      const int line = take().line;
      auto condition = disjunction();
      auto otherwise = skip_name("else") ? expression() : nullptr;
      left = make_of(Operation::kCondition, line, std::move(left), std::move(condition),
                     std::move(otherwise));
    }
    return left;
  }

  ExpressionPtr disjunction() {
    auto left = conjunction();
    while (is_name("or")) {
      const int line = take().line;
      left = make_of(Operation::kOr, line, std::move(left), conjunction());
    }
    return left;
  }

  ExpressionPtr conjunction() {
    auto left = negation();
    while (is_name("and")) {
      const int line = take().line;
      left = make_of(Operation::kAnd, line, std::move(left), negation());
    }
    return left;
  }

  ExpressionPtr negation() {
    if (!is_name("not")) return comparison();
    const Level level(*this);
    const int line = take().line;
    return make_of(Operation::kNot, line, negation());
  }

  bool comparison_follows(Comparison& which) {
    static const std::map<std::string_view, Comparison> kOperators = {
        {"==", Comparison::kEq}, {"!=", Comparison::kNe}, {"<", Comparison::kLt},
        {"<=", Comparison::kLe}, {">", Comparison::kGt},  {">=", Comparison::kGe}};
    if (is(TokenKind::kOperator)) {
      const auto found = kOperators.find(now().text);
      if (found == kOperators.end()) return false;
      which = found->second;
      take();
      return true;
    }
    if (skip_name("in")) {
      which = Comparison::kIn;
      return true;
    }
    if (!is_name("not") || ahead().kind != TokenKind::kName || ahead().text != "in") return false;
    take();
    take();
    which = Comparison::kNotIn;
    return true;
  }

  ExpressionPtr comparison() {
    const int line = now().line;
    std::vector<ExpressionPtr> parts;
    parts.push_back(sum());
    std::vector<Comparison> comparisons;
    for (Comparison which{}; comparison_follows(which);) {
      comparisons.push_back(which);
      parts.push_back(sum());
    }
    if (comparisons.empty()) return std::move(parts.front());
    auto made = make(Operation::kCompare, line, std::move(parts));
    made->comparisons = std::move(comparisons);
    return made;
  }

  ExpressionPtr sum() {
    auto left = concatenation();
    while (is_operator("+") || is_operator("-")) {
      const Token sign = take();
      left = make_of(sign.text == "+" ? Operation::kAdd : Operation::kSubtract, sign.line,
                     std::move(left), concatenation());
    }
    return left;
  }

  ExpressionPtr concatenation() {
    const int line = now().line;
    std::vector<ExpressionPtr> parts;
    parts.push_back(product());
    while (skip_operator("~")) parts.push_back(product());
    if (parts.size() == 1) return std::move(parts.front());
    return make(Operation::kConcat, line, std::move(parts));
  }

  ExpressionPtr product() {
    auto left = power();
    while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
      const Token sign = take();
      const Operation operation = sign.text == "*"    ? Operation::kMultiply
                                  : sign.text == "/"  ? Operation::kDivide
                                  : sign.text == "//" ? Operation::kFloorDivide
                                                      : Operation::kModulo;
      left = make_of(operation, sign.line, std::move(left), power());
    }
    return left;
  }

  // As in Jinja2, and unlike Python, `**` binds to the left and looser than a sign before it.
  ExpressionPtr power() {
    auto left = unary(true);
    while (is_operator("**")) {
      const int line = take().line;
      left = make_of(Operation::kPower, line, std::move(left), unary(true));
    }
    return left;
  }

  ExpressionPtr unary(bool with_filters) {
    const Level level(*this);
    ExpressionPtr made;
    if (is_operator("-") || is_operator("+")) {
      const Token sign = take();
      made = make_of(sign.text == "-" ? Operation::kNegate : Operation::kPlus, sign.line,
                     unary(false));
    } else {
      made = primary();
    }
    made = postfix(std::move(made));
    while (with_filters) {
      if (is_operator("|")) {
        take();
        made = filter(std::move(made));
      } else if (is_name("is")) {
        made = test(std::move(made));
      } else if (is_operator("(")) {
        made = call(std::move(made));
      } else {
        break;
      }
    }
    return made;
  }

  ExpressionPtr primary() {
    const int line = now().line;
    switch (now().kind) {
      case TokenKind::kName:
        return name_or_literal();
      case TokenKind::kString: {
        std::string text = take().text;
        while (is(TokenKind::kString)) text += take().text;
        return constant(Value(std::move(text)), line);
      }
      case TokenKind::kInteger:
        return constant(Value(integer(take())), line);
      case TokenKind::kFloat:
        return constant(Value(std::strtod(take().text.c_str(), nullptr)), line);
      default:
        break;
    }
    if (skip_operator("(")) {
      auto made = tuple(true, true);
      expect_operator(")");
      return made;
    }
    if (skip_operator("[")) return make(Operation::kList, line, list_until("]"));
    if (skip_operator("{")) return dict(line);
    fail(line, "expected an expression, found {}", describe());
  }

  std::int64_t integer(const Token& token) const {
    std::int64_t value = 0;
    const char* end = token.text.data() + token.text.size();
    const auto result = std::from_chars(token.text.data(), end, value);
    if (result.ec != std::errc() || result.ptr != end) {
      fail(token.line, "the number {} is too large", token.text);
    }
    return value;
  }

  ExpressionPtr name_or_literal() {
    const Token token = take();
    if (token.text == "true" || token.text == "True") return constant(Value(true), token.line);
    if (token.text == "false" || token.text == "False") return constant(Value(false), token.line);
    if (token.text == "none" || token.text == "None") return constant(None{}, token.line);
    if (!macros_.empty()) {
      Macro& macro = *macros_.back();
      macro.takes_varargs |= token.text == "varargs";
      macro.takes_kwargs |= token.text == "kwargs";
    }
    auto made = make(Operation::kName, token.line);
    made->name_slot = slot_of(token.text);
    made->name = token.text;
    if (is_unsupported_global(token.text) && !assigned_.contains(token.text)) {
      fail(token.line, "\"{}\" is not supported", token.text);
    }
    return made;
  }

  std::vector<ExpressionPtr> list_until(std::string_view end) {
    std::vector<ExpressionPtr> parts;
    while (!is_operator(end)) {
      if (!parts.empty()) expect_operator(",");
      if (is_operator(end)) break;
      parts.push_back(expression());
    }
    expect_operator(end);
    return parts;
  }

  ExpressionPtr dict(int line) {
    std::vector<ExpressionPtr> parts;
    while (!is_operator("}")) {
      if (!parts.empty()) expect_operator(",");
      if (is_operator("}")) break;
      parts.push_back(expression());
      expect_operator(":");
      parts.push_back(expression());
    }
    expect_operator("}");
    return make(Operation::kDict, line, std::move(parts));
  }

  bool tuple_ends() const {
    return is(TokenKind::kPrintEnd) || is(TokenKind::kBlockEnd) || is_operator(")");
  }

  // One expression, or several with commas between them.
  ExpressionPtr tuple(bool in_parentheses, bool with_condition) {
    const int line = now().line;
    std::vector<ExpressionPtr> parts;
    bool has_comma = false;
    while (!tuple_ends() && !(has_comma && is_name("recursive"))) {
      parts.push_back(expression(with_condition));
      if (!is_operator(",")) break;
      take();
      has_comma = true;
    }
    if (!has_comma && parts.size() == 1) return std::move(parts.front());
    if (parts.empty() && !in_parentheses) {
      fail(line, "expected an expression, found {}", describe());
    }
    return make(Operation::kTuple, line, std::move(parts));
  }

  ExpressionPtr postfix(ExpressionPtr made) {
    while (true) {
      if (is_operator(".")) {
        made = attribute(std::move(made));
      } else if (is_operator("[")) {
        made = subscript(std::move(made));
      } else if (is_operator("(")) {
        made = call(std::move(made));
      } else {
        return made;
      }
    }
  }

  ExpressionPtr attribute(ExpressionPtr object) {
    const int line = take().line;
    if (is(TokenKind::kInteger)) {
      auto index = constant(Value(integer(take())), line);
      return make_of(Operation::kItem, line, std::move(object), std::move(index));
    }
    auto made = make_of(Operation::kAttribute, line, std::move(object));
    made->name = expect_name();
    return made;
  }

  ExpressionPtr subscript(ExpressionPtr object) {
    const int line = take().line;
    const auto optional = [&]() -> ExpressionPtr {
      return is_operator(":") || is_operator("]") ? nullptr : expression();
    };
    auto first = optional();
    if (!is_operator(":")) {
      if (first == nullptr) fail(line, "an empty subscript");
      if (is_operator(",")) fail(line, "a subscript with a comma is not supported");
      expect_operator("]");
      return make_of(Operation::kItem, line, std::move(object), std::move(first));
    }
    take();
    auto stop = optional();
    auto step = skip_operator(":") ? optional() : nullptr;
    expect_operator("]");
    return make_of(Operation::kSlice, line, std::move(object), std::move(first), std::move(stop),
                   std::move(step));
  }

  // Reads `(a, b, c=d)` into the parts and named arguments of `made`.
  void arguments(Expression& made) {
    expect_operator("(");
    bool first = true;
    while (!is_operator(")")) {
      if (!first) expect_operator(",");
      if (is_operator(")")) break;
      first = false;
      if (is_operator("*") || is_operator("**")) {
        fail(now().line, "arguments by \"{}\" are not supported", now().text);
      }
      if (is(TokenKind::kName) && ahead().kind == TokenKind::kOperator && ahead().text == "=") {
        std::string name = take().text;
        take();
        for (const auto& [other, unused] : made.named) {
          if (other == name) fail(now().line, "the argument \"{}\" is there twice", name);
        }
        made.named.emplace_back(std::move(name), expression());
      } else {
        if (!made.named.empty()) {
          fail(now().line, "an argument without a name after one with a name");
        }
        made.parts.push_back(expression());
      }
    }
    take();
    measure(made);
  }

  ExpressionPtr call(ExpressionPtr callee) {
    auto made = make_of(Operation::kCall, now().line, std::move(callee));
    arguments(*made);
    return made;
  }

  ExpressionPtr filter(ExpressionPtr subject) {
    auto made = make_of(Operation::kFilter, now().line, std::move(subject));
    made->name = dotted_name();
    made->builtin = find_filter(made->name);
    if (made->builtin == nullptr) {
      fail(made->line, "the filter \"{}\" {}", made->name, why_not_filter(made->name));
    }
    if (is_operator("(")) arguments(*made);
    return made;
  }

  ExpressionPtr test(ExpressionPtr subject) {
    take();
    const bool negated = skip_name("not");
    auto made = make_of(Operation::kTest, now().line, std::move(subject));
    made->name = dotted_name();
    made->builtin = find_test(made->name);
    if (made->builtin == nullptr) {
      fail(made->line, "the test \"{}\" {}", made->name, why_not_test(made->name));
    }
    if (is_operator("(")) {
      arguments(*made);
    } else if (bare_argument_follows()) {
      if (is_name("is")) fail(now().line, "tests cannot be chained with \"is\"");
      made->parts.push_back(postfix(primary()));
      measure(*made);
    }
    const int line = made->line;
    return negated ? make_of(Operation::kNot, line, std::move(made)) : std::move(made);
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_operator(".")) name += "." + expect_name();
    return name;
  }

  bool bare_argument_follows() const {
    switch (now().kind) {
      case TokenKind::kName:
        return !is_name("else") && !is_name("or") && !is_name("and");
      case TokenKind::kString:
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return true;
      default:
        return is_operator("[") || is_operator("{");
    }
  }

  // --- statements

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
    static constexpr std::array<std::string_view, 11> kKnown = {
        "call", "include",    "import", "from",  "extends", "block",
        "do",   "autoescape", "trans",  "debug", "print"};
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
    if (is_name("recursive")) fail(line, "{{% for ... recursive %}} is not supported");
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
    macros_.push_back(macro.get());
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
    Statement closed_macro = closed(std::move(made), "endmacro");
    macros_.pop_back();
    macro->varargs_slot = slot_of("varargs");
    macro->kwargs_slot = slot_of("kwargs");
    macro->body = std::move(closed_macro.bodies.front());
    closed_macro.bodies.clear();
    closed_macro.macro = std::move(macro);
    return closed_macro;
  }

  std::string_view origin_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Tree tree_;
  std::map<std::string, std::size_t> slots_;
  std::set<std::string> assigned_;
  std::vector<Macro*> macros_;  // those whose body is being read
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
