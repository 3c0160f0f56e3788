// What may follow "is".

#include <algorithm>
#include <array>
#include <map>

#include "atoll/text/jinja/builtins.h"
#include "atoll/text/jinja/runtime.h"
#include "atoll/text/jinja/text.h"

namespace atl::text::jinja {

namespace {

void no_arguments(Runtime& runtime, Arguments& arguments) {
  runtime.bind("a test", arguments, {});
}

template <typename Check>
Value check(Runtime& runtime, Arguments& arguments, Check what) {
  no_arguments(runtime, arguments);
  return Value(static_cast<bool>(what()));
}

template <Kind kind>
Value is_kind(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments, [&] { return self.is(kind); });
}

// What is undefined counts, as in Jinja2, where calling it is what fails.
Value is_callable(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.bind("callable", arguments, {});
  return Value(self.is(Kind::kFunction) || self.is(Kind::kLoop) || self.is_undefined());
}

Value is_defined(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments, [&] { return !self.is_undefined(); });
}

Value is_number(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments, [&] { return self.is_number(); });
}

Value is_true(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments, [&] { return self.is(Kind::kBool) && self.as<bool>(); });
}

Value is_false(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments, [&] { return self.is(Kind::kBool) && !self.as<bool>(); });
}

Value is_iterable(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments, [&] {
    return !self.is_none() && !self.is_number() && !self.is(Kind::kNamespace) &&
           !self.is(Kind::kFunction);
  });
}

Value is_sequence(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments, [&] {
    return self.is_string() || self.is_sequence() || self.is_dict() || self.is(Kind::kRange) ||
           self.is_undefined();
  });
}

Value is_escaped(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments, [&] { return self.is_markup(); });
}

// True for letters of one case only, and at least one of them.
bool all_of_case(const std::string& text, int wanted) {
  bool any = false;
  for (const auto character : characters(text)) {
    const int letter = letter_case(code_point(character));
    if (letter == -wanted) return false;
    any |= letter == wanted;
  }
  return any;
}

Value is_lower(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments, [&] { return all_of_case(runtime.str(self), -1); });
}

Value is_upper(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments, [&] { return all_of_case(runtime.str(self), 1); });
}

std::int64_t remainder(Runtime& runtime, const Value& self, const Value& divisor) {
  runtime.want_integer(self, "what is tested");
  runtime.want_integer(divisor, "what it is divided by");
  return runtime.arithmetic(Operation::kModulo, self, divisor).integer();
}

Value is_even(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value two(std::int64_t{2});
  return check(runtime, arguments, [&] { return remainder(runtime, self, two) == 0; });
}

Value is_odd(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value two(std::int64_t{2});
  return check(runtime, arguments, [&] { return remainder(runtime, self, two) == 1; });
}

Value is_divisible(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("divisibleby", arguments, {"num"}, 1);
  return Value(remainder(runtime, self, *bound[0]) == 0);
}

Value other_of(Runtime& runtime, Arguments& arguments) {
  return *runtime.bind("a comparison", arguments, {"other"}, 1)[0];
}

Value is_equal(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Value(runtime.equal(self, other_of(runtime, arguments)));
}

Value is_unequal(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Value(!runtime.equal(self, other_of(runtime, arguments)));
}

Value is_less(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Value(runtime.less(self, other_of(runtime, arguments)));
}

Value is_at_most(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value other = other_of(runtime, arguments);
  return Value(runtime.less(self, other) || runtime.equal(self, other));
}

Value is_greater(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Value(runtime.less(other_of(runtime, arguments), self));
}

Value is_at_least(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value other = other_of(runtime, arguments);
  return Value(runtime.less(other, self) || runtime.equal(self, other));
}

Value is_in(Runtime& runtime, const Value& self, Arguments& arguments) {
  return Value(runtime.contains(other_of(runtime, arguments), self));
}

// Python's `is`: exact for None, bools, lists and dicts; equal numbers and strings of one type
// count as the same object, which in Python depends on how they came about.
Value is_same(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value other = other_of(runtime, arguments);
  if (self.kind() != other.kind()) return Value(false);
  if (self.is_sequence()) return Value(&self.sequence() == &other.sequence());
  if (self.is_dict()) return Value(&self.dict() == &other.dict());
  return Value(runtime.equal(self, other));
}

Value is_filter(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments,
               [&] { return self.is_string() && find_filter(self.string()) != nullptr; });
}

Value is_test(Runtime& runtime, const Value& self, Arguments& arguments) {
  return check(runtime, arguments,
               [&] { return self.is_string() && find_test(self.string()) != nullptr; });
}

}  // namespace

Builtin find_test(std::string_view name) {
  static const std::map<std::string_view, Builtin> kTests = {
      {"boolean", is_kind<Kind::kBool>},
      {"callable", is_callable},
      {"defined", is_defined},
      {"undefined", is_kind<Kind::kUndefined>},
      {"divisibleby", is_divisible},
      {"eq", is_equal},
      {"equalto", is_equal},
      {"==", is_equal},
      {"ne", is_unequal},
      {"!=", is_unequal},
      {"lt", is_less},
      {"lessthan", is_less},
      {"<", is_less},
      {"le", is_at_most},
      {"<=", is_at_most},
      {"gt", is_greater},
      {"greaterthan", is_greater},
      {">", is_greater},
      {"ge", is_at_least},
      {">=", is_at_least},
      {"escaped", is_escaped},
      {"even", is_even},
      {"odd", is_odd},
      {"false", is_false},
      {"true", is_true},
      {"filter", is_filter},
      {"test", is_test},
      {"float", is_kind<Kind::kFloat>},
      {"in", is_in},
      {"integer", is_kind<Kind::kInt>},
      {"iterable", is_iterable},
      {"lower", is_lower},
      {"upper", is_upper},
      {"mapping", is_kind<Kind::kDict>},
      {"none", is_kind<Kind::kNone>},
      {"number", is_number},
      {"sameas", is_same},
      {"sequence", is_sequence},
      {"string", is_kind<Kind::kString>}};
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

std::string_view why_not_test(std::string_view /*name*/) {
  return "does not exist";  // every test of Jinja2 is supported
}

}  // namespace atl::text::jinja
