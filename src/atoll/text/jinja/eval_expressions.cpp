#include "atoll/text/jinja/builtins.h"
#include "atoll/text/jinja/interpreter.h"

namespace atl::text::jinja {

Value Interpreter::evaluate(const Expression& expression, const ScopePtr& scope) {
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

Values Interpreter::all_parts(const Expression& expression, const ScopePtr& scope) {
  Values items;
  items.reserve(expression.parts.size());
  for (const auto& part : expression.parts) items.push_back(evaluate(*part, scope));
  return items;
}

Value Interpreter::variable(const Expression& expression, const ScopePtr& scope) {
  if (const Value* found = scope->find(expression.name_slot)) return *found;
  if (const Builtin builtin = find_global(expression.name)) {
    return Value(std::make_shared<const Function>(
        Function{.name = expression.name, .builtin = builtin, .self = {}}));
  }
  return undefined("\"{}\" is undefined", expression.name);
}

void Interpreter::add_unpacked(const Expression& expression, const ScopePtr& scope,
                               Arguments& arguments) {
  if (expression.more_parts != nullptr) {
    const Value more = evaluate(*expression.more_parts, scope);
    if (more.is_undefined()) fail_undefined(more);
    for (const Value& value : iterate(more)) arguments.positional.push_back(value);
  }
  if (expression.more_named == nullptr) return;
  const Value more = evaluate(*expression.more_named, scope);
  if (more.is_undefined()) fail_undefined(more);
  if (!more.is_dict()) fail("\"**\" needs a dict, not {}", type_name(more));
  for (const auto& [key, value] : more.dict().entries) {
    const std::string& name = want_string(key, "a name of \"**\"");
    for (const auto& [other, unused] : arguments.named) {
      if (other == name) fail("the argument \"{}\" is given twice", name);
    }
    arguments.named.emplace_back(name, value);
  }
}

Value Interpreter::apply(const Expression& expression, const ScopePtr& scope, const Value* caller) {
  const Value subject = evaluate(*expression.parts[0], scope);
  Arguments arguments;
  for (std::size_t i = 1; i < expression.parts.size(); ++i) {
    arguments.positional.push_back(evaluate(*expression.parts[i], scope));
  }
  for (const auto& [name, part] : expression.named) {
    arguments.named.emplace_back(name, evaluate(*part, scope));
  }
  add_unpacked(expression, scope, arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line = expression.line;
  if (expression.operation == Operation::kCall) return call(subject, arguments);
  return expression.builtin(*this, subject, arguments);
}

Value Interpreter::compare(const Expression& expression, const ScopePtr& scope) {
  Value left = evaluate(*expression.parts[0], scope);
  for (std::size_t i = 0; i < expression.comparisons.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1], scope);
    line = expression.line;
    if (!holds(expression.comparisons[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

bool Interpreter::holds(Comparison comparison, const Value& a, const Value& b) {
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

}  // namespace atl::text::jinja
