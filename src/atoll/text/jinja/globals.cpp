// Global functions, and what `loop` offers.

#include <array>
#include <map>

#include "atoll/text/jinja/builtins.h"
#include "atoll/text/jinja/runtime.h"

namespace atl::text::jinja {

namespace {

constexpr std::size_t kMaxRange = 100'000;  // as Jinja2's sandbox has it

Value range(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
  const auto bound = runtime.bind("range", arguments, {"start", "stop", "step"}, 1);
  const auto number = [&](std::size_t i, std::int64_t absent) {
    return bound[i].has_value() ? runtime.want_integer(*bound[i], "an argument of range") : absent;
  };
  Range made{.start = number(0, 0), .stop = number(1, 0), .step = number(2, 1)};
  if (!bound[1].has_value()) made = {.start = 0, .stop = made.start, .step = 1};
  if (made.step == 0) runtime.fail("the step of range cannot be 0");
  if (made.size() > kMaxRange) {
    runtime.fail("a range of {} numbers; {} are allowed", made.size(), kMaxRange);
  }
  return Value(made);
}

// The entries that Python's dict(...) takes: a dict or pairs, then names.
Dict entries(Runtime& runtime, std::string_view function, Arguments& arguments) {
  Dict made;
  if (arguments.positional.size() > 1) runtime.fail("{} takes one argument at most", function);
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is_dict()) {
      for (const auto& [key, value] : from.dict().entries) runtime.set(made, key, value);
    } else {
      for (const Value& pair : runtime.iterate(from)) {
        const Values both = runtime.iterate(pair);
        if (both.size() != 2) runtime.fail("{} needs pairs of key and value", function);
        runtime.set(made, both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) runtime.set(made, Value(name), value);
  return made;
}

Value dict(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
  return runtime.dict(entries(runtime, "dict", arguments));
}

Value name_space(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
  Dict attributes = entries(runtime, "namespace", arguments);
  for (const auto& [key, value] : attributes.entries) {
    if (key.is_string() && key.string().starts_with('_')) {
      runtime.fail("\"{}\" cannot be an attribute of a namespace: it begins with an underscore",
                   key.string());
    }
  }
  return runtime.make_namespace(std::move(attributes));
}

Value raise_exception(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
  const auto bound = runtime.bind("raise_exception", arguments, {"message"}, 1);
  runtime.fail("the template refuses these messages: {}", runtime.str(*bound[0]));
}

Value strftime_now(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
  const auto bound = runtime.bind("strftime_now", arguments, {"format"}, 1);
  std::string format = runtime.want_string(*bound[0], "the format of strftime_now");
  constexpr std::string_view kKnown = "aAbBcdHIjmMpSUwWxXyYuVGDFTReyCnth%-";
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') continue;
    if (++i == format.size() || kKnown.find(format[i]) == std::string_view::npos) {
      runtime.fail("the format \"{}\" of strftime_now is not supported", format);
    }
    // glibc's "%-d" leaves the zero away; the letter after the sign must be known too.
    if (format[i] == '-' && (++i == format.size() ||
                             std::string_view("dHIjmMSy").find(format[i]) == std::string::npos)) {
      runtime.fail("the format \"{}\" of strftime_now is not supported", format);
    }
  }
  if (format.size() > 1000) runtime.fail("a format of strftime_now of {} bytes", format.size());
  std::tm local{};
  const std::time_t now = runtime.now();
  localtime_r(&now, &local);
  format += '.';  // so that an empty result differs from one that does not fit
  std::string out(format.size() * 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &local));
  if (!out.empty()) out.pop_back();
  return runtime.text(std::move(out));
}

// Gives nothing at the first call, and what it joins with from then on.
Value joined(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("a joiner", arguments, {});
  Iterator& state = *self.as<std::shared_ptr<Iterator>>();
  return state.next++ == 0 ? runtime.text("") : state.items.front();
}

Value joiner(Runtime& runtime, const Value& /*self*/, Arguments& arguments) {
  const auto bound = runtime.bind("joiner", arguments, {"sep"});
  const Value between = bound[0].has_value() ? *bound[0] : runtime.text(", ");
  return Value(std::make_shared<const Function>(Function{
      .name = "joiner", .builtin = joined, .self = runtime.iterator("joiner", {between})}));
}

Value loop_cycle(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty()) runtime.fail("loop.cycle needs something to go through");
  const auto turn = static_cast<std::size_t>(self.as<std::shared_ptr<Loop>>()->index0);
  return arguments.positional[turn % arguments.positional.size()];
}

Value loop_changed(Runtime& runtime, const Value& self, Arguments& arguments) {
  Loop& loop = *self.as<std::shared_ptr<Loop>>();
  bool same =
      loop.last_changed.has_value() && loop.last_changed->size() == arguments.positional.size();
  for (std::size_t i = 0; same && i < arguments.positional.size(); ++i) {
    same = runtime.equal((*loop.last_changed)[i], arguments.positional[i]);
  }
  loop.last_changed = arguments.positional;
  return Value(!same);
}

}  // namespace

std::optional<Value> Loop::attribute(Runtime& runtime, const Value& self, const std::string& name) {
  const auto number = [](std::int64_t value) { return Value(value); };
  const auto method = [&](Builtin builtin) {
    return Value(
        std::make_shared<const Function>(Function{.name = name, .builtin = builtin, .self = self}));
  };
  if (name == "index") return number(index0 + 1);
  if (name == "index0") return number(index0);
  if (name == "first") return Value(index0 == 0);
  if (name == "depth") return number(depth0 + 1);
  if (name == "depth0") return number(depth0);
  if (name == "cycle") return method(loop_cycle);
  if (name == "changed") return method(loop_changed);
  if (name == "previtem") {
    return previous.has_value() ? *previous : runtime.undefined("there is no previous item");
  }
  if (name == "last" || name == "nextitem") {
    const bool more = !ahead.empty() || look_ahead();
    if (watch != nullptr && !more) watch->whole = true;
    if (watch != nullptr) watch->needs(offset + static_cast<std::size_t>(index0) + 2);
    if (name == "last") return Value(!more);
    return more ? ahead.front() : runtime.undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    if (watch != nullptr) watch->whole = true;
    while (look_ahead()) {
    }
    const auto rest = static_cast<std::int64_t>(ahead.size());
    return number(name == "length" ? index0 + 1 + rest : name == "revindex" ? rest + 1 : rest);
  }
  return std::nullopt;
}

Builtin find_global(std::string_view name) {
  static const std::map<std::string_view, Builtin> kGlobals = {{"range", range},
                                                               {"dict", dict},
                                                               {"joiner", joiner},
                                                               {"namespace", name_space},
                                                               {"raise_exception", raise_exception},
                                                               {"strftime_now", strftime_now}};
  const auto found = kGlobals.find(name);
  return found == kGlobals.end() ? nullptr : found->second;
}

bool is_unsupported_global(std::string_view name) {
  return name == "lipsum" || name == "cycler" || name == "self";
}

}  // namespace atl::text::jinja
