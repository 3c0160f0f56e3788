// What an expression's operators do to values, as Python defines it.

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/text/jinja/builtins.h"
#include "atoll/text/jinja/runtime.h"
#include "atoll/text/jinja/text.h"

namespace atl::text::jinja {

namespace {

// What Python calls a value in messages about missing attributes.
std::string named(const Value& object) {
  return object.is_none() ? "None" : fmt::format("{} object", type_name(object));
}

const char* symbol(Operation operation) {
  switch (operation) {
    case Operation::kAdd:
      return "+";
    case Operation::kSubtract:
      return "-";
    case Operation::kMultiply:
      return "*";
    case Operation::kDivide:
      return "/";
    case Operation::kFloorDivide:
      return "//";
    case Operation::kModulo:
      return "%";
    default:
      return "**";
  }
}

// The position of a Python index in something of `size`, or nothing.
std::optional<std::size_t> position(std::int64_t index, std::size_t size) {
  if (index < 0) index += static_cast<std::int64_t>(size);
  if (index < 0 || index >= static_cast<std::int64_t>(size)) return std::nullopt;
  return static_cast<std::size_t>(index);
}

double floored_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace

std::optional<Value> Runtime::method(const Value& object, const std::string& name) {
  const MethodLookup found = find_method(object.kind(), name);
  switch (found.result) {
    case MethodLookup::Result::kFound:
      return Value(std::make_shared<const Function>(
          Function{.name = name, .builtin = found.builtin, .self = object}));
    case MethodLookup::Result::kAbsent:
      return std::nullopt;
    case MethodLookup::Result::kForbidden:
      return undefined("\"{}\" would change a {}, which templates may not do", name,
                       type_name(object));
    case MethodLookup::Result::kUnsupported:
      fail("\"{}\" of a {} is not supported", name, type_name(object));
  }
  return std::nullopt;
}

// object[key] without the fall-back to attributes.
std::optional<Value> Runtime::entry(const Value& object, const Value& key) {
  if (object.is_dict()) {
    std::string hashed;
    const Value* found = hash_key(key, hashed) ? object.dict().find(hashed) : nullptr;
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (!key.is_integral()) return std::nullopt;
  if (object.is_sequence()) {
    const Sequence& sequence = object.unwatched();
    const auto size = static_cast<std::int64_t>(sequence.items.size());
    if (sequence.watch != nullptr && key.integer() >= 0 && key.integer() < size) {
      sequence.watch->needs(sequence.offset + static_cast<std::size_t>(key.integer()) + 1);
      return sequence.items[static_cast<std::size_t>(key.integer())];
    }
    const auto at = position(key.integer(), object.items().size());
    return at.has_value() ? std::optional<Value>(object.items()[*at]) : std::nullopt;
  }
  if (object.is_string()) {
    charge(object.string().size());
    const auto all = characters(object.string());
    const auto at = position(key.integer(), all.size());
    if (!at.has_value()) return std::nullopt;
    return text(std::string(all[*at]), object.is_markup());
  }
  if (object.is(Kind::kRange)) {
    const Range range = object.as<Range>();
    const auto at = position(key.integer(), range.size());
    if (!at.has_value()) return std::nullopt;
    return Value(range.start + static_cast<std::int64_t>(*at) * range.step);
  }
  return std::nullopt;
}

Value Runtime::attribute(const Value& object, const std::string& name) {
  charge(0);
  if (object.is_undefined()) fail_undefined(object);
  if (object.is(Kind::kNamespace)) {
    const Value* found = object.as<Namespace*>()->attributes.find(name);
    if (found != nullptr) return *found;
  } else if (object.is(Kind::kLoop)) {
    if (auto found = object.as<std::shared_ptr<Loop>>()->attribute(*this, object, name)) {
      return *found;
    }
  } else {
    if (auto found = method(object, name)) return *found;
    if (object.is(Kind::kTuple) && object.unwatched().is_group) {
      if (name == "grouper") return object.items()[0];
      if (name == "list") return object.items()[1];
    }
    if (object.is_dict()) {
      const Value* found = object.dict().find(name);
      if (found != nullptr) return *found;
    }
  }
  return undefined("a {} has no attribute \"{}\"", named(object), name);
}

Value Runtime::item(const Value& object, const Value& key) {
  charge(0);
  if (object.is_undefined()) fail_undefined(object);
  if (auto found = entry(object, key)) return *found;
  if (key.is_string()) {
    const Value found = attribute(object, key.string());
    if (!found.is_undefined()) return found;
    return found;
  }
  return undefined("a {} has no element {}", named(object), repr(key));
}

// What follows the first elements of a watched list is watched as well.
Value Runtime::rest_of_watched(const Sequence& list, std::size_t start) {
  const std::size_t first = std::min(start, list.items.size());
  charge_bytes((list.items.size() - first) * sizeof(Value));
  Sequence rest{
      .items = Values(list.items.begin() + static_cast<std::ptrdiff_t>(first), list.items.end()),
      .depth = list.depth,
      .watch = list.watch,
      .offset = list.offset + start};
  return Value(List{std::make_shared<const Sequence>(std::move(rest))});
}

Value Runtime::slice(const Value& object, const Value& start, const Value& stop,
                     const Value& step) {
  if (object.is_undefined()) fail_undefined(object);
  if (!object.is_sequence() && !object.is_string()) {
    fail("a value of type {} cannot be sliced", type_name(object));
  }
  const std::int64_t stride = step.is_none() ? 1 : want_integer(step, "the step of a slice");
  if (stride == 0) fail("the step of a slice cannot be 0");
  if (object.is(Kind::kList) && object.unwatched().watch != nullptr && stride == 1 &&
      stop.is_none() && start.is_integral() && start.integer() >= 0) {
    return rest_of_watched(object.unwatched(), static_cast<std::size_t>(start.integer()));
  }
  std::vector<std::string_view> letters;
  if (object.is_string()) {
    charge(object.string().size());
    letters = characters(object.string());
  }
  const auto size =
      static_cast<std::int64_t>(object.is_string() ? letters.size() : object.items().size());
  const std::int64_t lowest = stride > 0 ? 0 : -1;
  const std::int64_t highest = stride > 0 ? size : size - 1;
  const auto bound = [&](const Value& value, std::int64_t absent) {
    if (value.is_none()) return absent;
    std::int64_t index = want_integer(value, "a bound of a slice");
    if (index < 0) index = index < -size ? lowest : std::max(lowest, index + size);
    return std::min(index, highest);
  };
  const std::int64_t first = bound(start, stride > 0 ? lowest : highest);
  const std::int64_t last = bound(stop, stride > 0 ? highest : lowest);
  std::string out;
  Values items;
  const Range taken{first, last, stride};
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const auto at = static_cast<std::size_t>(first + static_cast<std::int64_t>(i) * stride);
    if (object.is_string()) {
      out += letters[at];
    } else {
      items.push_back(object.items()[at]);
    }
  }
  if (object.is_string()) return text(std::move(out), object.is_markup());
  return sequence(std::move(items), object.is(Kind::kTuple));
}

Value Runtime::integer_arithmetic(Operation operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (operation) {
    case Operation::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operation::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operation::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operation::kFloorDivide:
    case Operation::kModulo: {
      if (b == 0) fail("division by zero");
      if (b == -1) {
        if (operation == Operation::kModulo) return Value(std::int64_t{0});
        overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
        break;
      }
      const bool inexact = a % b != 0 && (a % b < 0) != (b < 0);
      result =
          operation == Operation::kModulo ? a % b + (inexact ? b : 0) : a / b - (inexact ? 1 : 0);
      break;
    }
    default: {  // kPower, b >= 0
      result = 1;
      std::int64_t factor = a;
      for (std::int64_t rest = b; rest > 0 && !overflow; rest /= 2) {
        if (rest % 2 == 1) overflow = __builtin_mul_overflow(result, factor, &result);
        if (rest > 1 && !overflow) overflow = __builtin_mul_overflow(factor, factor, &factor);
      }
    }
  }
  if (overflow) fail("{} {} {} is too large (64 bits)", a, symbol(operation), b);
  return Value(result);
}

Value Runtime::float_arithmetic(Operation operation, double a, double b) {
  switch (operation) {
    case Operation::kAdd:
      return Value(a + b);
    case Operation::kSubtract:
      return Value(a - b);
    case Operation::kMultiply:
      return Value(a * b);
    case Operation::kDivide:
      if (b == 0) fail("division by zero");
      return Value(a / b);
    case Operation::kModulo:
      if (b == 0) fail("division by zero");
      return Value(floored_modulo(a, b));
    case Operation::kFloorDivide: {
      if (b == 0) fail("division by zero");
      const double exact = (a - floored_modulo(a, b)) / b;
      double whole = std::floor(exact);
      if (exact - whole > 0.5) whole += 1;
      return Value(exact == 0 ? std::copysign(0.0, a / b) : whole);
    }
    default: {
      if (a == 0 && b < 0) fail("0 to a negative power");
      if (a < 0 && std::trunc(b) != b) fail("a negative number to a broken power");
      const double result = std::pow(a, b);
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) fail("a power that is too large");
      return Value(result);
    }
  }
}

Value Runtime::repeat(const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  const std::size_t unit = value.is_string() ? value.string().size() : value.items().size();
  if (unit > 0 && count > limits_.output_bytes / unit / (value.is_string() ? 1 : sizeof(Value))) {
    fail("a text or list repeated {} times is too large", count);
  }
  if (value.is_string()) {
    std::string out;
    for (std::size_t i = 0; unit > 0 && i < count; ++i) out += value.string();
    return text(std::move(out), value.is_markup());
  }
  Values items;
  for (std::size_t i = 0; unit > 0 && i < count; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return sequence(std::move(items), value.is(Kind::kTuple));
}

Value Runtime::add(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    const bool markup = a.is_markup() || b.is_markup();
    const auto part = [&](const Value& value) {
      return markup && !value.is_markup() ? escape_html(value.string()) : value.string();
    };
    return text(part(a) + part(b), markup);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    Values items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return sequence(std::move(items), a.is(Kind::kTuple));
  }
  if (a.is_string() || b.is_string()) {
    fail("{} + {}: only strings can be added to strings (\"~\" turns both into strings)",
         type_name(a), type_name(b));
  }
  fail("{} + {} is not possible", type_name(a), type_name(b));
}

Value Runtime::arithmetic(Operation operation, const Value& a, const Value& b) {
  charge(0);
  if (operation == Operation::kModulo && a.is_string()) {
    if (a.is_markup()) fail("\"%\" on a string marked safe is not supported");
    return text(percent_format(a.string(), b));
  }
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_number() && b.is_number()) {
    const bool to_float =
        operation == Operation::kDivide || (operation == Operation::kPower && b.number() < 0);
    if (a.is_integral() && b.is_integral() && !to_float) {
      return integer_arithmetic(operation, a.integer(), b.integer());
    }
    return float_arithmetic(operation, a.number(), b.number());
  }
  if (operation == Operation::kAdd) return add(a, b);
  if (operation == Operation::kMultiply) {
    const auto repeats = [](const Value& value) {
      return value.is_string() || value.is_sequence();
    };
    if (repeats(a) && b.is_integral()) return repeat(a, b.integer());
    if (repeats(b) && a.is_integral()) return repeat(b, a.integer());
  }
  fail("{} {} {} is not possible", type_name(a), symbol(operation), type_name(b));
}

Value Runtime::sign(Operation operation, const Value& a) {
  if (a.is_undefined()) fail_undefined(a);
  if (!a.is_number()) fail("a sign before a value of type {}", type_name(a));
  const bool negate = operation == Operation::kNegate;
  if (a.is(Kind::kFloat)) return Value(negate ? -a.number() : a.number());
  return negate ? integer_arithmetic(Operation::kSubtract, 0, a.integer()) : Value(a.integer());
}

Value Runtime::call(const Value& callee, Arguments& arguments) {
  charge(0);
  if (callee.is_undefined()) fail_undefined(callee);
  if (callee.is(Kind::kLoop)) return call_loop(callee.as<std::shared_ptr<Loop>>(), arguments);
  if (!callee.is(Kind::kFunction)) fail("a value of type {} cannot be called", type_name(callee));
  // Held here, because the call may drop the variable that it came from.
  const std::shared_ptr<const Function> function = callee.as<std::shared_ptr<const Function>>();
  if (function->macro != nullptr) return call_macro(*function->macro, *function, arguments);
  return function->builtin(*this, function->self, arguments);
}

}  // namespace atl::text::jinja
