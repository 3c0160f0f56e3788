#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/text/jinja/ast.h"
#include "atoll/text/jinja/lexer.h"

namespace atl::text::jinja {

/// Reads expressions from the tokens of a template; the half of the parser below statements.
class ExpressionParser {
 protected:
  ExpressionParser(std::string_view source, std::string_view origin)
      : origin_(origin), tokens_(tokenize(source, origin)) {}
  ~ExpressionParser() = default;

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
    for (const ExpressionPtr* part : {&made.more_parts, &made.more_named}) {
      if (*part != nullptr) made.depth = std::max(made.depth, (*part)->depth + 1);
    }
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
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxTreeDepth) {
        parser_.fail(parser_.now().line, "nested more than {} levels deep", kMaxTreeDepth);
      }
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // --- expressions, loosest binding first

  ExpressionPtr expression(bool with_condition = true);
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  bool comparison_follows(Comparison& which);
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  std::int64_t integer(const Token& token) const;
  ExpressionPtr name_or_literal();
  std::vector<ExpressionPtr> list_until(std::string_view end);
  ExpressionPtr dict(int line);
  bool tuple_ends() const;
  ExpressionPtr tuple(bool in_parentheses, bool with_condition);
  ExpressionPtr postfix(ExpressionPtr made);
  ExpressionPtr attribute(ExpressionPtr object);
  ExpressionPtr subscript(ExpressionPtr object);
  void arguments(Expression& made);
  ExpressionPtr call(ExpressionPtr callee);
  ExpressionPtr filter(ExpressionPtr subject);
  ExpressionPtr test(ExpressionPtr subject);
  std::string dotted_name();
  bool bare_argument_follows() const;

  std::string_view origin_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Tree tree_;
  std::map<std::string, std::size_t> slots_;
  std::set<std::string> assigned_;
  std::vector<Macro*> macros_;  // those whose body is being read
};

}  // namespace atl::text::jinja
