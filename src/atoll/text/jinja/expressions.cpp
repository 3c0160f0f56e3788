#include "atoll/text/jinja/expressions.h"

#include <charconv>
#include <cstdlib>

#include "atoll/text/jinja/builtins.h"

namespace atl::text::jinja {

ExpressionPtr ExpressionParser::expression(bool with_condition) {
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

ExpressionPtr ExpressionParser::disjunction() {
  auto left = conjunction();
  while (is_name("or")) {
    const int line = take().line;
    left = make_of(Operation::kOr, line, std::move(left), conjunction());
  }
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  auto left = negation();
  while (is_name("and")) {
    const int line = take().line;
    left = make_of(Operation::kAnd, line, std::move(left), negation());
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Level level(*this);
  const int line = take().line;
  return make_of(Operation::kNot, line, negation());
}

bool ExpressionParser::comparison_follows(Comparison& which) {
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

ExpressionPtr ExpressionParser::comparison() {
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

ExpressionPtr ExpressionParser::sum() {
  auto left = concatenation();
  while (is_operator("+") || is_operator("-")) {
    const Token sign = take();
    left = make_of(sign.text == "+" ? Operation::kAdd : Operation::kSubtract, sign.line,
                   std::move(left), concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = now().line;
  std::vector<ExpressionPtr> parts;
  parts.push_back(product());
  while (skip_operator("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts.front());
  return make(Operation::kConcat, line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
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
ExpressionPtr ExpressionParser::power() {
  auto left = unary(true);
  while (is_operator("**")) {
    const int line = take().line;
    left = make_of(Operation::kPower, line, std::move(left), unary(true));
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Level level(*this);
  ExpressionPtr made;
  if (is_operator("-") || is_operator("+")) {
    const Token sign = take();
    made =
        make_of(sign.text == "-" ? Operation::kNegate : Operation::kPlus, sign.line, unary(false));
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

ExpressionPtr ExpressionParser::primary() {
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

std::int64_t ExpressionParser::integer(const Token& token) const {
  std::int64_t value = 0;
  const char* end = token.text.data() + token.text.size();
  const auto result = std::from_chars(token.text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) {
    fail(token.line, "the number {} is too large", token.text);
  }
  return value;
}

ExpressionPtr ExpressionParser::name_or_literal() {
  const Token token = take();
  if (token.text == "true" || token.text == "True") return constant(Value(true), token.line);
  if (token.text == "false" || token.text == "False") return constant(Value(false), token.line);
  if (token.text == "none" || token.text == "None") return constant(None{}, token.line);
  if (!macros_.empty()) {
    Macro& macro = *macros_.back();
    macro.takes_varargs |= token.text == "varargs";
    macro.takes_kwargs |= token.text == "kwargs";
  }
  // As in Jinja2, a name inside of a macro's own macros counts too.
  for (Macro* macro : macros_) macro->takes_caller |= token.text == "caller";
  auto made = make(Operation::kName, token.line);
  made->name_slot = slot_of(token.text);
  made->name = token.text;
  if (is_unsupported_global(token.text) && !assigned_.contains(token.text)) {
    fail(token.line, "\"{}\" is not supported", token.text);
  }
  return made;
}

std::vector<ExpressionPtr> ExpressionParser::list_until(std::string_view end) {
  std::vector<ExpressionPtr> parts;
  while (!is_operator(end)) {
    if (!parts.empty()) expect_operator(",");
    if (is_operator(end)) break;
    parts.push_back(expression());
  }
  expect_operator(end);
  return parts;
}

ExpressionPtr ExpressionParser::dict(int line) {
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

bool ExpressionParser::tuple_ends() const {
  return is(TokenKind::kPrintEnd) || is(TokenKind::kBlockEnd) || is_operator(")");
}

// One expression, or several with commas between them.
ExpressionPtr ExpressionParser::tuple(bool in_parentheses, bool with_condition) {
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

ExpressionPtr ExpressionParser::postfix(ExpressionPtr made) {
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

ExpressionPtr ExpressionParser::attribute(ExpressionPtr object) {
  const int line = take().line;
  if (is(TokenKind::kInteger)) {
    auto index = constant(Value(integer(take())), line);
    return make_of(Operation::kItem, line, std::move(object), std::move(index));
  }
  auto made = make_of(Operation::kAttribute, line, std::move(object));
  made->name = expect_name();
  return made;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
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
void ExpressionParser::arguments(Expression& made) {
  expect_operator("(");
  bool first = true;
  while (!is_operator(")")) {
    if (!first) expect_operator(",");
    if (is_operator(")")) break;
    first = false;
    if (is_operator("*") || is_operator("**")) {
      ExpressionPtr& more = is_operator("*") ? made.more_parts : made.more_named;
      if (more != nullptr || made.more_named != nullptr) {
        fail(now().line, "\"{}\" behind such an argument", now().text);
      }
      take();
      more = expression();
    } else if (made.more_named != nullptr) {
      fail(now().line, "an argument behind one with \"**\"");
    } else if (is(TokenKind::kName) && ahead().kind == TokenKind::kOperator &&
               ahead().text == "=") {
      std::string name = take().text;
      take();
      for (const auto& [other, unused] : made.named) {
        if (other == name) fail(now().line, "the argument \"{}\" is there twice", name);
      }
      made.named.emplace_back(std::move(name), expression());
    } else {
      if (!made.named.empty() || made.more_parts != nullptr) {
        fail(now().line, "an argument without a name after one with a name or \"*\"");
      }
      made.parts.push_back(expression());
    }
  }
  take();
  measure(made);
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  auto made = make_of(Operation::kCall, now().line, std::move(callee));
  arguments(*made);
  return made;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr subject) {
  auto made = make_of(Operation::kFilter, now().line, std::move(subject));
  made->name = dotted_name();
  made->builtin = find_filter(made->name);
  if (made->builtin == nullptr) {
    fail(made->line, "the filter \"{}\" {}", made->name, why_not_filter(made->name));
  }
  if (is_operator("(")) arguments(*made);
  return made;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr subject) {
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

std::string ExpressionParser::dotted_name() {
  std::string name = expect_name();
  while (skip_operator(".")) name += "." + expect_name();
  return name;
}

bool ExpressionParser::bare_argument_follows() const {
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

}  // namespace atl::text::jinja
