#pragma once

// The walk through a template's tree. Statements are in interpreter.cpp, expressions in
// eval_expressions.cpp; both internal to this folder.

#include <cstddef>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "atoll/text/jinja/ast.h"
#include "atoll/text/jinja/eval.h"
#include "atoll/text/jinja/runtime.h"

namespace atl::text::jinja {

/// Variables of one template, loop turn, macro call or block. Shared, because a macro keeps the
/// scope that it was defined in.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::size_t, Value>> variables;

  /// The variable of a slot here or in a scope around this one, or nullptr.
  const Value* find(std::size_t slot) const;
  /// Sets a variable here.
  void set(std::size_t slot, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

/// An empty scope in another one.
ScopePtr inner_scope(const ScopePtr& parent);

/// How a body ended.
enum class Flow { kOn, kBreak, kContinue };

/// One rendering of one template.
class Interpreter : public Runtime {
 public:
  Interpreter(const Tree& tree, std::string_view origin, const Limits& limits, std::time_t now);
  /// Makes run() record the turns of loops over these dicts.
  void track(std::span<const Value> messages);
  /// Runs the whole template, once.
  Output run(const Dict& variables);

 protected:
  /// Whether after_turns wants to know of a loop over `iterated`, whose elements it then takes.
  virtual bool follows(const Statement& /*loop*/, const ScopePtr& /*scope*/,
                       const Value& /*iterated*/, Loop& /*state*/) {
    return false;
  }
  /// Of a loop that is followed: `count` turns are over, none at first, and nothing of them is left
  /// but what they have set.
  virtual void after_turns(const Statement& /*loop*/, const ScopePtr& /*scope*/,
                           const std::shared_ptr<Loop>& /*state*/, std::size_t /*count*/) {}

  std::size_t slot_of(std::string_view name) const;
  Flow execute(const Statement& statement, const ScopePtr& scope, std::string& out);

  const Tree& tree_;
  Output output_;
  // Values have a macro's number, not its scope: a scope holds its macros, and would hold itself.
  struct DefinedMacro {
    std::shared_ptr<const Macro> macro;
    ScopePtr scope;
  };
  std::vector<DefinedMacro> macros_;

 private:
  Flow execute(const Body& body, const ScopePtr& scope, std::string& out);
  void write(std::string_view text, std::string& out);
  Flow execute_if(const Statement& statement, const ScopePtr& scope, std::string& out);
  Flow execute_generation(const Statement& statement, const ScopePtr& scope, std::string& out);
  Flow execute_for(const Statement& statement, const ScopePtr& scope, std::string& out);
  Flow run_loop(const Statement& statement, const ScopePtr& scope, const Value& iterated,
                std::int64_t depth0, std::string& out);
  Value call_loop(const std::shared_ptr<Loop>& loop, Arguments& arguments) override;
  Flow execute_turn(const Statement& statement, const std::shared_ptr<Loop>& loop,
                    const ScopePtr& scope, std::string& out);
  void record_turn(const Statement& statement, const Value& element, std::size_t begin,
                   const std::string& out);
  Value filtered_block(const Statement& statement, const ScopePtr& scope);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);

  Value macro_value(const std::shared_ptr<const Macro>& macro, const ScopePtr& scope);
  void take_caller(const Macro& macro, Arguments& arguments, const ScopePtr& scope);
  Value call_macro(const Macro& macro, const Function& function, Arguments& arguments) override;
  void rest_of_arguments(const Macro& macro, Arguments& arguments, const ScopePtr& scope);

  Value evaluate(const Expression& expression, const ScopePtr& scope);
  Values all_parts(const Expression& expression, const ScopePtr& scope);
  Value variable(const Expression& expression, const ScopePtr& scope);
  Value apply(const Expression& expression, const ScopePtr& scope, const Value* caller = nullptr);
  void add_unpacked(const Expression& expression, const ScopePtr& scope, Arguments& arguments);
  Value compare(const Expression& expression, const ScopePtr& scope);
  bool holds(Comparison comparison, const Value& a, const Value& b);

  std::size_t loop_slot_;
  int generations_ = 0;
  std::unordered_map<const Dict*, std::size_t> tracked_;  // messages, and their places
};

}  // namespace atl::text::jinja
