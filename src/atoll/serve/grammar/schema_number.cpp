#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "atoll/serve/grammar/schema_compiler.h"

namespace atl::serve::grammar {

namespace {

constexpr std::int64_t kMaxDigits = 17;
constexpr std::int64_t kMost = 999999999999999999;  // 18 digits: fits in 64 bits

// A bound of a magnitude: `whole`.`fraction`, itself allowed or not.
struct Bound {
  std::int64_t whole = 0;
  std::string fraction;  // digits without zeros at the end
  bool is_strict = false;
};

// Texts of decimal numbers between bounds.
class Digits {
 public:
  Digits(GrammarBuilder& builder, JsonValues& values) : builder_(builder), values_(values) {}

  /// Whole numbers from `low` to `high`, both 0 or more.
  Node whole(std::int64_t low, std::int64_t high) {
    std::vector<Node> alternatives;
    const std::string last = std::to_string(high);
    while (low <= high) {
      const std::string first = std::to_string(low);
      const std::string end = first.size() == last.size() ? last : std::string(first.size(), '9');
      alternatives.push_back(same_length(first, end));
      if (first.size() == last.size()) break;
      low = std::stoll(end) + 1;
    }
    return builder_.choice(std::move(alternatives));
  }

  /// Numbers from `low` to `high`, with a fraction or without.
  Node decimal(const Bound& low, const Bound& high) {
    std::vector<Node> alternatives;
    if (low.whole < high.whole) {
      alternatives.push_back(builder_.sequence({whole(low.whole, low.whole), fraction_from(low)}));
      alternatives.push_back(
          builder_.sequence({whole(low.whole + 1, high.whole - 1), any_fraction()}));
    }
    // Of one whole part the lower bound is its beginning, as the caller has seen to.
    if (low.whole <= high.whole) {
      alternatives.push_back(builder_.sequence({whole(high.whole, high.whole), fraction_to(high)}));
    }
    return builder_.choice(std::move(alternatives));
  }

 private:
  Node digits(std::int64_t min, std::int64_t max) {
    return builder_.repeat(values_.digit(), min, max);
  }
  Node any_fraction() {
    return builder_.optional(builder_.sequence({builder_.literal("."), digits(1, kMaxDigits)}));
  }
  Node one_digit(char first, char last) {
    ByteSet set;
    for (int c = first; c <= last; ++c) set.set(static_cast<std::size_t>(c));
    return builder_.bytes(set);
  }

  Node same_length(const std::string& low, const std::string& high) {
    const auto size = static_cast<std::int64_t>(low.size());
    if (size == 0) return builder_.empty();
    const std::string low_rest = low.substr(1), high_rest = high.substr(1);
    const std::string zeros(low_rest.size(), '0'), nines(low_rest.size(), '9');
    if (low_rest == zeros && high_rest == nines) {
      return builder_.sequence({one_digit(low[0], high[0]), digits(size - 1, size - 1)});
    }
    const auto tail = [&](char digit, const std::string& from, const std::string& to) {
      return builder_.sequence({one_digit(digit, digit), same_length(from, to)});
    };
    if (low[0] == high[0]) return tail(low[0], low_rest, high_rest);
    std::vector<Node> alternatives = {tail(low[0], low_rest, nines),
                                      tail(high[0], zeros, high_rest)};
    if (low[0] + 1 < high[0]) {
      alternatives.push_back(builder_.sequence(
          {one_digit(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
           digits(size - 1, size - 1)}));
    }
    return builder_.choice(std::move(alternatives));
  }

  // What follows low.whole in a number of at least (or, strict, above) `low`.
  Node fraction_from(const Bound& low) {
    if (low.fraction.empty() && !low.is_strict) return any_fraction();
    Node rest = low.is_strict ? builder_.sequence({builder_.repeat(one_digit('0', '0'), 0, 5),
                                                   one_digit('1', '9'), digits(0, 5)})
                              : digits(0, 5);
    for (auto digit = low.fraction.rbegin(); digit != low.fraction.rend(); ++digit) {
      std::vector<Node> alternatives = {builder_.sequence({one_digit(*digit, *digit), rest})};
      if (*digit < '9') {
        alternatives.push_back(builder_.sequence(
            {one_digit(static_cast<char>(*digit + 1), '9'), digits(0, kMaxDigits)}));
      }
      rest = builder_.choice(std::move(alternatives));
    }
    return builder_.sequence({builder_.literal("."), rest});
  }

  // What follows high.whole in a number of at most (or, strict, below) `high`.
  Node fraction_to(const Bound& high) {
    const Node zeros = builder_.repeat(one_digit('0', '0'), 1, kMaxDigits);
    if (high.fraction.empty()) {
      if (high.is_strict) return builder_.nothing();
      return builder_.optional(builder_.sequence({builder_.literal("."), zeros}));
    }
    // Behind the digits of the bound; then, before each of them, a lesser one, or the same.
    Node rest = high.is_strict ? builder_.nothing() : builder_.optional(zeros);
    for (std::size_t i = high.fraction.size(); i-- > 0;) {
      const char digit = high.fraction[i];
      std::vector<Node> alternatives = {builder_.sequence({one_digit(digit, digit), rest})};
      if (digit > '0') {
        alternatives.push_back(builder_.sequence(
            {one_digit('0', static_cast<char>(digit - 1)), digits(0, kMaxDigits)}));
      }
      rest = builder_.choice(std::move(alternatives));
      if (i > 0) rest = builder_.optional(rest);
    }
    return builder_.optional(builder_.sequence({builder_.literal("."), rest}));
  }

  GrammarBuilder& builder_;
  JsonValues& values_;
};

// A bound as JSON says it.
struct Limit {
  double value = 0;
  bool is_strict = false;
};

// The stricter of `minimum` and `exclusiveMinimum`, or of the maxima: `sign` is -1 for these.
std::optional<Limit> limit_of(const Json& schema, const char* keyword, const char* exclusive,
                              double sign, const std::string& pointer) {
  std::optional<Limit> result;
  if (schema.contains(keyword)) {
    const std::string here = child_pointer(pointer, keyword);
    if (!schema[keyword].is_number()) refuse_schema(here, "not a number");
    result = Limit{schema[keyword].get<double>(), false};
  }
  if (!schema.contains(exclusive)) return result;
  const Json& value = schema[exclusive];
  if (value.is_boolean()) {  // draft 4
    if (result) result->is_strict = value.get<bool>();
    return result;
  }
  if (!value.is_number()) refuse_schema(child_pointer(pointer, exclusive), "not a number");
  const auto number = value.get<double>();
  if (!result || sign * number >= sign * result->value) result = Limit{number, true};
  return result;
}

// Bounds beyond what is generated are none. Doubles hold whole numbers up to 2^53; those further
// off are refused, as their neighbours cannot be told apart.
void check_size(const std::optional<Limit>& limit, const std::string& pointer) {
  constexpr double kExact = 9007199254740992.0;
  if (limit && std::abs(limit->value) > kExact && std::abs(limit->value) < 1e18) {
    refuse_schema(pointer, "a bound of more than 2^53 is not supported");
  }
}

Node integer_node(const std::optional<Limit>& low, const std::optional<Limit>& high,
                  GrammarBuilder& builder, JsonValues& values) {
  std::int64_t first = -kMost, last = kMost;
  constexpr double kFar = 1e18;
  if (low && low->value >= kFar) return builder.nothing();
  if (high && high->value <= -kFar) return builder.nothing();
  if (low && low->value > -kFar) {
    first = static_cast<std::int64_t>(std::ceil(low->value));
    if (low->is_strict && static_cast<double>(first) == low->value) ++first;
  }
  if (high && high->value < kFar) {
    last = static_cast<std::int64_t>(std::floor(high->value));
    if (high->is_strict && static_cast<double>(last) == high->value) --last;
  }
  Digits digits(builder, values);
  std::vector<Node> alternatives;
  if (first < 0 && first <= last) {
    alternatives.push_back(builder.sequence(
        {builder.literal("-"), digits.whole(std::max<std::int64_t>(1, -last), -first)}));
  }
  alternatives.push_back(digits.whole(std::max<std::int64_t>(0, first), last));
  return builder.choice(std::move(alternatives));
}

Bound magnitude(const std::optional<Limit>& limit, const std::string& pointer) {
  if (!limit || std::abs(limit->value) >= 1e18) return {kMost, "", true};
  const std::string text = fmt::format("{}", std::abs(limit->value));
  if (text.find('e') != std::string::npos) {
    refuse_schema(pointer, "a bound with an exponent is not supported");
  }
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string fraction = point < text.size() ? text.substr(point + 1) : "";
  while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
  return {std::stoll(text.substr(0, point)), std::move(fraction), limit->is_strict};
}

// Numbers of one sign, whose magnitudes are from `low` to `high`.
Node magnitudes_node(const Bound& low, const Bound& high, const std::string& pointer,
                     Digits& digits) {
  if (low.whole == high.whole && (low.is_strict || !low.fraction.empty())) {
    refuse_schema(pointer, "minimum and maximum with the same whole part are not supported");
  }
  return digits.decimal(low, high);
}

Node decimal_node(const std::optional<Limit>& low, const std::optional<Limit>& high,
                  const std::string& pointer, GrammarBuilder& builder, JsonValues& values) {
  Digits digits(builder, values);
  std::vector<Node> alternatives;
  if (low && high && low->value > high->value) return builder.nothing();
  const Bound zero;
  const bool all_below = high && high->value <= 0, all_above = low && low->value >= 0;
  if (!all_below) {
    const Bound from = all_above ? magnitude(low, pointer) : zero;
    alternatives.push_back(magnitudes_node(from, magnitude(high, pointer), pointer, digits));
  }
  if (!all_above) {
    const Bound from = all_below ? magnitude(high, pointer) : zero;
    alternatives.push_back(builder.sequence(
        {builder.literal("-"), magnitudes_node(from, magnitude(low, pointer), pointer, digits)}));
  }
  if (alternatives.empty()) {  // both bounds are 0
    if (low->is_strict || high->is_strict) return builder.nothing();
    alternatives.push_back(builder.literal("0"));
  }
  return builder.choice(std::move(alternatives));
}

}  // namespace

Node number_node(const Json& schema, const std::string& pointer, bool is_integer,
                 GrammarBuilder& builder, JsonValues& values) {
  if (schema.contains("multipleOf")) {
    const Json& step = schema["multipleOf"];
    if (!step.is_number() || step != 1) {
      refuse_schema(child_pointer(pointer, "multipleOf"), "only 1 is supported");
    }
    is_integer = true;
  }
  const auto low = limit_of(schema, "minimum", "exclusiveMinimum", 1, pointer);
  const auto high = limit_of(schema, "maximum", "exclusiveMaximum", -1, pointer);
  if (!low && !high) return is_integer ? values.integer() : values.number();
  check_size(low, pointer);
  check_size(high, pointer);
  if (is_integer) return integer_node(low, high, builder, values);
  return decimal_node(low, high, pointer, builder, values);
}

}  // namespace atl::serve::grammar
