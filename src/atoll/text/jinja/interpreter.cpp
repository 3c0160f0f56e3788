#include "atoll/text/jinja/interpreter.h"

#include <algorithm>

namespace atl::text::jinja {

const Value* Scope::find(std::size_t slot) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [name, value] : scope->variables) {
      if (name == slot) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::size_t slot, Value value) {
  for (auto& [name, old] : variables) {
    if (name == slot) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(slot, std::move(value));
}

ScopePtr inner_scope(const ScopePtr& parent) {
  auto made = std::make_shared<Scope>();
  made->parent = parent;
  return made;
}

Interpreter::Interpreter(const Tree& tree, std::string_view origin, const Limits& limits,
                         std::time_t now)
    : Runtime(origin, limits, now), tree_(tree), loop_slot_(slot_of("loop")) {}

std::size_t Interpreter::slot_of(std::string_view name) const {
  const auto found = std::find(tree_.names.begin(), tree_.names.end(), name);
  return static_cast<std::size_t>(found - tree_.names.begin());
}

void Interpreter::track(std::span<const Value> messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) tracked_.emplace(&messages[i].dict(), i);
}

Output Interpreter::run(const Dict& variables) {
  const ScopePtr root = inner_scope(nullptr);
  for (std::size_t slot = 0; slot < tree_.names.size(); ++slot) {
    if (const Value* value = variables.find(tree_.names[slot])) root->set(slot, *value);
  }
  execute(tree_.body, root, output_.text);
  return std::move(output_);
}

Flow Interpreter::execute(const Body& body, const ScopePtr& scope, std::string& out) {
  const Nested nested(*this);
  for (const Statement& statement : body) {
    line = statement.line;
    charge(0);
    const Flow flow = execute(statement, scope, out);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

void Interpreter::write(std::string_view text, std::string& out) {
  charge_bytes(text.size());
  if (text.size() > limits().output_bytes - std::min(out.size(), limits().output_bytes)) {
    fail("an output of more than {} MB", limits().output_bytes >> 20);
  }
  out += text;
}

Flow Interpreter::execute(const Statement& statement, const ScopePtr& scope, std::string& out) {
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
      scope->set(statement.targets[0].name_slot, macro_value(statement.macro, scope));
      return Flow::kOn;
    case Action::kCall: {
      const Value caller = macro_value(statement.macro, scope);
      write(str(apply(*statement.expressions[0], scope, &caller)), out);
      return Flow::kOn;
    }
    case Action::kWith: {
      const ScopePtr block = inner_scope(scope);
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

Flow Interpreter::execute_if(const Statement& statement, const ScopePtr& scope, std::string& out) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i) {
    if (truthy(evaluate(*statement.expressions[i], scope))) {
      return execute(statement.bodies[i], scope, out);
    }
  }
  return execute(statement.bodies.back(), scope, out);
}

Flow Interpreter::execute_generation(const Statement& statement, const ScopePtr& scope,
                                     std::string& out) {
  const std::size_t begin = out.size();
  ++generations_;
  execute(statement.bodies[0], inner_scope(scope), out);
  --generations_;
  if (&out != &output_.text) {
    output_.lost_generation_line = statement.line;
  } else if (generations_ == 0 && out.size() > begin) {
    output_.generated.push_back({begin, out.size()});
  }
  return Flow::kOn;
}

Flow Interpreter::execute_for(const Statement& statement, const ScopePtr& scope, std::string& out) {
  return run_loop(statement, scope, evaluate(*statement.expressions[0], scope), 0, out);
}

Value Interpreter::call_loop(const std::shared_ptr<Loop>& loop, Arguments& arguments) {
  const Nested nested(*this);
  if (loop->recursive == nullptr) {
    fail("this loop cannot be called: write {{% for ... in ... recursive %}}");
  }
  const auto bound = bind("loop", arguments, {"iterable"}, 1);
  const int call_line = line;
  const ScopePtr around = loop->around;
  std::string written;
  run_loop(*loop->recursive, around, *bound[0], loop->depth0 + 1, written);
  line = call_line;
  return text(std::move(written));
}

Flow Interpreter::run_loop(const Statement& statement, const ScopePtr& scope, const Value& iterated,
                           std::int64_t depth0, std::string& out) {
  const Target& target = statement.targets[0];
  const auto loop = std::make_shared<Loop>();
  struct Finish {
    Loop& loop;
    ~Finish() { loop.finish(); }
  } const finish{*loop};
  loop->depth0 = depth0;
  if (statement.is_recursive) {
    loop->recursive = &statement;
    loop->around = scope;
  }
  line = statement.line;
  const bool followed = follows(statement, scope, iterated, *loop);
  if (!followed) loop->source = iterate(iterated);
  if (statement.expressions.size() > 1) {
    loop->test = [this, &statement, &target, &scope](const Value& value) {
      const ScopePtr turn = inner_scope(scope);
      assign(target, value, turn);
      return truthy(evaluate(*statement.expressions[1], turn));
    };
  }
  bool completed = false;
  bool broken = false;
  if (followed) after_turns(statement, scope, loop, 0);
  for (std::size_t count = 1; !broken && loop->advance(); ++count) {
    const std::size_t begin = out.size();
    const Flow flow = execute_turn(statement, loop, scope, out);
    if (!tracked_.empty()) record_turn(statement, loop->current, begin, out);
    broken = flow == Flow::kBreak;
    completed |= flow == Flow::kOn;
    if (followed && !broken) after_turns(statement, scope, loop, count);
  }
  if (!tracked_.empty() && &out == &output_.text) output_.loop_ends[&statement] = out.size();
  // As in Jinja2: `else` runs unless a turn went through to its end.
  if (!completed && statement.bodies.size() > 1) return execute(statement.bodies[1], scope, out);
  return Flow::kOn;
}

Flow Interpreter::execute_turn(const Statement& statement, const std::shared_ptr<Loop>& loop,
                               const ScopePtr& scope, std::string& out) {
  charge_bytes(64);
  const ScopePtr turn = inner_scope(scope);
  turn->set(loop_slot_, Value(loop));
  line = statement.line;
  assign(statement.targets[0], loop->current, turn);
  return execute(statement.bodies[0], turn, out);
}

void Interpreter::record_turn(const Statement& statement, const Value& element, std::size_t begin,
                              const std::string& out) {
  if (&out != &output_.text || !element.is_dict()) return;
  const auto found = tracked_.find(&element.dict());
  if (found == tracked_.end()) return;
  charge_bytes(sizeof(Turn));
  output_.turns.push_back(
      {.message = found->second, .loop = &statement, .begin = begin, .end = out.size()});
}

Value Interpreter::filtered_block(const Statement& statement, const ScopePtr& scope) {
  std::string written;
  const ScopePtr block = inner_scope(scope);
  execute(statement.bodies[0], block, written);
  line = statement.line;
  const ScopePtr output = inner_scope(scope);
  output->set(kBlockOutputSlot, text(std::move(written)));
  return evaluate(*statement.expressions[0], output);
}

void Interpreter::assign(const Target& target, const Value& value, const ScopePtr& scope) {
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

Value Interpreter::macro_value(const std::shared_ptr<const Macro>& macro, const ScopePtr& scope) {
  charge_bytes(256);
  macros_.push_back({macro, scope});
  auto function = std::make_shared<Function>();
  function->name = macro->name;
  function->macro = macro.get();
  function->self = Value(static_cast<std::int64_t>(macros_.size() - 1));
  return Value(std::shared_ptr<const Function>(function));
}

// `caller` of a macro that uses the name: what {% call %} gave, else something undefined.
void Interpreter::take_caller(const Macro& macro, Arguments& arguments, const ScopePtr& scope) {
  const bool is_parameter = std::find(macro.parameters.begin(), macro.parameters.end(), "caller") !=
                            macro.parameters.end();
  if (!macro.takes_caller || is_parameter) return;
  const auto given = std::find_if(arguments.named.begin(), arguments.named.end(),
                                  [](const auto& each) { return each.first == "caller"; });
  if (given == arguments.named.end()) {
    scope->set(macro.caller_slot,
               undefined("the macro \"{}\" has no caller: nothing is round it", macro.name));
    return;
  }
  scope->set(macro.caller_slot, given->second);
  arguments.named.erase(given);
}

Value Interpreter::call_macro(const Macro& macro, const Function& function, Arguments& arguments) {
  const Nested nested(*this);
  const int call_line = line;
  const ScopePtr defined_in = macros_[static_cast<std::size_t>(function.self.integer())].scope;
  const ScopePtr scope = inner_scope(defined_in);
  const std::size_t count = macro.parameters.size();
  const std::size_t first_default = count - macro.defaults.size();
  Values& given = arguments.positional;
  for (std::size_t i = 0; i < count; ++i) {
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& a) { return a.first == macro.parameters[i]; });
    if (i < given.size()) {
      scope->set(macro.slots[i], given[i]);
    } else if (named != arguments.named.end()) {
      scope->set(macro.slots[i], named->second);
      arguments.named.erase(named);
    } else if (i >= first_default) {
      scope->set(macro.slots[i], evaluate(*macro.defaults[i - first_default], scope));
    } else {
      scope->set(macro.slots[i], undefined("the parameter \"{}\" of the macro \"{}\" is not given",
                                           macro.parameters[i], macro.name));
    }
  }
  line = call_line;
  take_caller(macro, arguments, scope);
  rest_of_arguments(macro, arguments, scope);
  std::string written;
  execute(macro.body, scope, written);
  line = call_line;
  return text(std::move(written));
}

void Interpreter::rest_of_arguments(const Macro& macro, Arguments& arguments,
                                    const ScopePtr& scope) {
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

Output render(const Tree& tree, std::string_view origin, const Value& variables, std::time_t now,
              const Limits& limits, std::span<const Value> messages) {
  Interpreter interpreter(tree, origin, limits, now);
  interpreter.track(messages);
  return interpreter.run(variables.dict());
}

}  // namespace atl::text::jinja
