#include "atoll/text/jinja_eval.h"

#include <algorithm>

#include "atoll/text/jinja_builtins.h"

namespace atl::text::jinja {

namespace {

// Variables of one template, loop turn, macro call or block. Shared, because a macro keeps the
// scope that it was defined in.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::size_t, Value>> variables;

  const Value* find(std::size_t slot) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
      for (const auto& [name, value] : scope->variables) {
        if (name == slot) return &value;
      }
    }
    return nullptr;
  }
  void set(std::size_t slot, Value value) {
    for (auto& [name, old] : variables) {
      if (name == slot) {
        old = std::move(value);
        return;
      }
    }
    variables.emplace_back(slot, std::move(value));
  }
};
using ScopePtr = std::shared_ptr<Scope>;

ScopePtr inner(const ScopePtr& parent) {
  auto made = std::make_shared<Scope>();
  made->parent = parent;
  return made;
}

// How a body ended.
enum class Flow { kOn, kBreak, kContinue };

class Interpreter : public Runtime {
 public:
  Interpreter(const Tree& tree, std::string_view origin, const Limits& limits, std::time_t now)
      : Runtime(origin, limits, now), tree_(tree) {
    const auto loop = std::find(tree.names.begin(), tree.names.end(), "loop");
    loop_slot_ = static_cast<std::size_t>(loop - tree.names.begin());
  }

  Output run(const Dict& variables) {
    const ScopePtr root = inner(nullptr);
    for (std::size_t slot = 0; slot < tree_.names.size(); ++slot) {
      if (const Value* value = variables.find(tree_.names[slot])) root->set(slot, *value);
    }
    execute(tree_.body, root, output_.text);
    return std::move(output_);
  }

 private:
  // --- statements

  Flow execute(const Body& body, const ScopePtr& scope, std::string& out) {
    const Nested nested(*this);
    for (const Statement& statement : body) {
      line = statement.line;
      charge(0);
      const Flow flow = execute(statement, scope, out);
      if (flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

  void write(std::string_view text, std::string& out) {
    charge_bytes(text.size());
    if (text.size() > limits().output_bytes - std::min(out.size(), limits().output_bytes)) {
      fail("an output of more than {} MB", limits().output_bytes >> 20);
    }
    out += text;
  }

  Flow execute(const Statement& statement, const ScopePtr& scope, std::string& out) {
    switch (statement.action) {
      case Action::kText:
        write(statement.text, out);
        return Flow::kOn;
      case Action::kPrint: {
        const Value value = evaluate(*statement.expressions[0], scope);
        write(value.is_string() ? value.string() : str(value), out);
        return Flow::kOn;
      }
      case Action::kIf:
        return execute_if(statement, scope, out);
      case Action::kFor:
        return execute_for(statement, scope, out);
      case Action::kSet:
        assign(statement.targets[0], evaluate(*statement.expressions[0], scope), scope);
        return Flow::kOn;
      case Action::kSetBlock:
        assign(statement.targets[0], filtered_block(statement, scope), scope);
        return Flow::kOn;
      case Action::kFilter:
        write(str(filtered_block(statement, scope)), out);
        return Flow::kOn;
      case Action::kMacro:
        define(statement, scope);
        return Flow::kOn;
      case Action::kWith: {
        const ScopePtr block = inner(scope);
        for (std::size_t i = 0; i < statement.targets.size(); ++i) {
          assign(statement.targets[i], evaluate(*statement.expressions[i], scope), block);
        }
        return execute(statement.bodies[0], block, out);
      }
      case Action::kGeneration:
        return execute_generation(statement, scope, out);
      case Action::kBreak:
        return Flow::kBreak;
      case Action::kContinue:
        return Flow::kContinue;
    }
    return Flow::kOn;
  }

  Flow execute_if(const Statement& statement, const ScopePtr& scope, std::string& out) {
    for (std::size_t i = 0; i < statement.expressions.size(); ++i) {
      if (truthy(evaluate(*statement.expressions[i], scope))) {
        return execute(statement.bodies[i], scope, out);
      }
    }
    return execute(statement.bodies.back(), scope, out);
  }

  Flow execute_generation(const Statement& statement, const ScopePtr& scope, std::string& out) {
    const std::size_t begin = out.size();
    ++generations_;
    execute(statement.bodies[0], inner(scope), out);
    --generations_;
    if (&out != &output_.text) {
      output_.lost_generation_line = statement.line;
    } else if (generations_ == 0 && out.size() > begin) {
      output_.generated.push_back({begin, out.size()});
    }
    return Flow::kOn;
  }

  Flow execute_for(const Statement& statement, const ScopePtr& scope, std::string& out) {
    const Target& target = statement.targets[0];
    const auto loop = std::make_shared<Loop>();
    struct Finish {
      Loop& loop;
      ~Finish() { loop.finish(); }
    } const finish{*loop};
    const Value iterated = evaluate(*statement.expressions[0], scope);
    line = statement.line;
    loop->source = iterate(iterated);
    if (statement.expressions.size() > 1) {
      loop->test = [this, &statement, &target, &scope](const Value& value) {
        const ScopePtr turn = inner(scope);
        assign(target, value, turn);
        return truthy(evaluate(*statement.expressions[1], turn));
      };
    }
    bool completed = false;
    while (loop->advance()) {
      charge_bytes(64);
      const ScopePtr turn = inner(scope);
      turn->set(loop_slot_, Value(loop));
      line = statement.line;
      assign(target, loop->current, turn);
      const Flow flow = execute(statement.bodies[0], turn, out);
      if (flow == Flow::kBreak) break;
      completed |= flow == Flow::kOn;
    }
    // As in Jinja2: `else` runs unless a turn went through to its end.
    if (!completed && statement.bodies.size() > 1) return execute(statement.bodies[1], scope, out);
    return Flow::kOn;
  }

  Value filtered_block(const Statement& statement, const ScopePtr& scope) {
    std::string written;
    const ScopePtr block = inner(scope);
    execute(statement.bodies[0], block, written);
    line = statement.line;
    const ScopePtr output = inner(scope);
    output->set(kBlockOutputSlot, text(std::move(written)));
    return evaluate(*statement.expressions[0], output);
  }

  void assign(const Target& target, const Value& value, const ScopePtr& scope) {
    if (target.is_tuple) {
      const Values items = iterate(value);
      if (items.size() != target.parts.size()) {
        fail("{} values cannot be assigned to {} names", items.size(), target.parts.size());
      }
      for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
    } else if (target.attribute.empty()) {
      scope->set(target.name_slot, value);
    } else {
      const Value* object = scope->find(target.name_slot);
      const std::string& name = tree_.names[target.name_slot];
      if (object == nullptr || !object->is(Kind::kNamespace)) {
        fail("\"{}.{}\" cannot be set: \"{}\" is no namespace", name, target.attribute, name);
      }
      if (target.attribute[0] == '_') {
        fail("\"{}.{}\" cannot be set: it begins with an underscore", name, target.attribute);
      }
      set(object->as<Namespace*>()->attributes, Value(target.attribute), value);
    }
  }

  // --- macros

  void define(const Statement& statement, const ScopePtr& scope) {
    charge_bytes(256);
    macros_.push_back({statement.macro, scope});
    auto function = std::make_shared<Function>();
    function->name = statement.macro->name;
    function->macro = statement.macro.get();
    function->self = Value(static_cast<std::int64_t>(macros_.size() - 1));
    scope->set(statement.targets[0].name_slot, Value(std::shared_ptr<const Function>(function)));
  }

  Value call_macro(const Macro& macro, const Function& function, Arguments& arguments) override {
    const Nested nested(*this);
    const int call_line = line;
    const ScopePtr defined_in = macros_[static_cast<std::size_t>(function.self.integer())].scope;
    const ScopePtr scope = inner(defined_in);
    const std::size_t count = macro.parameters.size();
    const std::size_t first_default = count - macro.defaults.size();
    Values& given = arguments.positional;
    for (std::size_t i = 0; i < count; ++i) {
      const auto named =
          std::find_if(arguments.named.begin(), arguments.named.end(),
                       [&](const auto& a) { return a.first == macro.parameters[i]; });
      if (i < given.size()) {
        scope->set(macro.slots[i], given[i]);
      } else if (named != arguments.named.end()) {
        scope->set(macro.slots[i], named->second);
        arguments.named.erase(named);
      } else if (i >= first_default) {
        scope->set(macro.slots[i], evaluate(*macro.defaults[i - first_default], scope));
      } else {
        scope->set(macro.slots[i],
                   undefined("the parameter \"{}\" of the macro \"{}\" is not given",
                             macro.parameters[i], macro.name));
      }
    }
    line = call_line;
    rest_of_arguments(macro, arguments, scope);
    std::string written;
    execute(macro.body, scope, written);
    line = call_line;
    return text(std::move(written));
  }

  void rest_of_arguments(const Macro& macro, Arguments& arguments, const ScopePtr& scope) {
    const std::size_t count = std::min(macro.parameters.size(), arguments.positional.size());
    if (macro.takes_varargs) {
      scope->set(macro.varargs_slot,
                 tuple(Values(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                              arguments.positional.end())));
    } else if (arguments.positional.size() > count) {
      fail("the macro \"{}\" takes {} arguments, not {}", macro.name, macro.parameters.size(),
           arguments.positional.size());
    }
    if (macro.takes_kwargs) {
      Dict rest;
      for (auto& [name, value] : arguments.named) set(rest, Value(name), std::move(value));
      scope->set(macro.kwargs_slot, dict(std::move(rest)));
    } else if (!arguments.named.empty()) {
      fail("the macro \"{}\" has no parameter \"{}\" to be given", macro.name,
           arguments.named[0].first);
    }
  }

  // --- expressions

  Value evaluate(const Expression& expression, const ScopePtr& scope) {
    const Nested nested(*this);
    charge(0);
    line = expression.line;
    const auto part = [&](std::size_t i) { return evaluate(*expression.parts[i], scope); };
    switch (expression.operation) {
      case Operation::kConstant:
        return expression.value;
      case Operation::kName:
        return variable(expression, scope);
      case Operation::kList:
        return list(all_parts(expression, scope));
      case Operation::kTuple:
        return tuple(all_parts(expression, scope));
      case Operation::kDict: {
        Dict made;
        for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
          const Value key = part(i);
          set(made, key, part(i + 1));
        }
        return dict(std::move(made));
      }
      case Operation::kCondition:
        if (truthy(part(1))) return part(0);
        if (expression.parts[2] != nullptr) return part(2);
        return undefined("the condition on line {} is false and has no else", expression.line);
      case Operation::kOr:
      case Operation::kAnd: {
        Value left = part(0);
        return truthy(left) == (expression.operation == Operation::kOr) ? left : part(1);
      }
      case Operation::kNot:
        return Value(!truthy(part(0)));
      case Operation::kNegate:
      case Operation::kPlus:
        return sign(expression.operation, part(0));
      case Operation::kConcat: {
        std::string joined;
        for (std::size_t i = 0; i < expression.parts.size(); ++i) joined += str(part(i));
        return text(std::move(joined));
      }
      case Operation::kCompare:
        return compare(expression, scope);
      case Operation::kAttribute: {
        const Value object = part(0);
        line = expression.line;
        return attribute(object, expression.name);
      }
      case Operation::kItem: {
        const Value object = part(0);
        const Value key = part(1);
        line = expression.line;
        return item(object, key);
      }
      case Operation::kSlice: {
        const auto bound = [&](std::size_t i) {
          return expression.parts[i] == nullptr ? Value(None{}) : part(i);
        };
        const Value object = part(0);
        const Value start = bound(1);
        const Value stop = bound(2);
        const Value step = bound(3);
        line = expression.line;
        return slice(object, start, stop, step);
      }
      case Operation::kCall:
      case Operation::kFilter:
      case Operation::kTest:
        return apply(expression, scope);
      default: {
        const Value left = part(0);
        const Value right = part(1);
        line = expression.line;
        return arithmetic(expression.operation, left, right);
      }
    }
  }

  Values all_parts(const Expression& expression, const ScopePtr& scope) {
    Values items;
    items.reserve(expression.parts.size());
    for (const auto& part : expression.parts) items.push_back(evaluate(*part, scope));
    return items;
  }

  Value variable(const Expression& expression, const ScopePtr& scope) {
    if (const Value* found = scope->find(expression.name_slot)) return *found;
    if (const Builtin builtin = find_global(expression.name)) {
      return Value(std::make_shared<const Function>(
          Function{.name = expression.name, .builtin = builtin, .self = {}}));
    }
    return undefined("\"{}\" is undefined", expression.name);
  }

  // A call, filter or test: the first part is what is called, or what is filtered or tested.
  Value apply(const Expression& expression, const ScopePtr& scope) {
    const Value subject = evaluate(*expression.parts[0], scope);
    Arguments arguments;
    for (std::size_t i = 1; i < expression.parts.size(); ++i) {
      arguments.positional.push_back(evaluate(*expression.parts[i], scope));
    }
    for (const auto& [name, part] : expression.named) {
      arguments.named.emplace_back(name, evaluate(*part, scope));
    }
    line = expression.line;
    if (expression.operation == Operation::kCall) return call(subject, arguments);
    return expression.builtin(*this, subject, arguments);
  }

  Value compare(const Expression& expression, const ScopePtr& scope) {
    Value left = evaluate(*expression.parts[0], scope);
    for (std::size_t i = 0; i < expression.comparisons.size(); ++i) {
      Value right = evaluate(*expression.parts[i + 1], scope);
      line = expression.line;
      if (!holds(expression.comparisons[i], left, right)) return Value(false);
      left = std::move(right);
    }
    return Value(true);
  }

  bool holds(Comparison comparison, const Value& a, const Value& b) {
    switch (comparison) {
      case Comparison::kEq:
        return equal(a, b);
      case Comparison::kNe:
        return !equal(a, b);
      case Comparison::kLt:
        return less(a, b);
      case Comparison::kLe:
        return less(a, b) || equal(a, b);
      case Comparison::kGt:
        return less(b, a);
      case Comparison::kGe:
        return less(b, a) || equal(a, b);
      case Comparison::kIn:
        return contains(b, a);
      case Comparison::kNotIn:
        return !contains(b, a);
    }
    return false;
  }

  struct DefinedMacro {
    std::shared_ptr<const Macro> macro;
    ScopePtr scope;
  };

  const Tree& tree_;
  std::size_t loop_slot_;
  int generations_ = 0;
  Output output_;
  // Values have a macro's number, not its scope: a scope holds its macros, and would hold itself.
  std::vector<DefinedMacro> macros_;
};

}  // namespace

Output render(const Tree& tree, std::string_view origin, const Value& variables, std::time_t now,
              const Limits& limits) {
  return Interpreter(tree, origin, limits, now).run(variables.dict());
}

}  // namespace atl::text::jinja
