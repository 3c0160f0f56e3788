#pragma once

// JSON from outside. The library's own parser ends at a NUL byte, keeps the last of two members of
// one name, recurses as deep as the text nests, and says what was wrong without saying in which
// file; nothing but these functions calls it for a text that atoll has not just made.

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "atoll/base/error.h"

namespace atl {

/// What a reader of JSON can take.
struct JsonRules {
  int max_depth = 64;                       ///< brackets and braces within each other
  ErrorKind refusal = ErrorKind::kDamaged;  ///< kUser for what a person has just written
};

/// The value that `text` is, to its last byte. Throws Error(rules.refusal) that begins with
/// `origin` (the file) and says what is wrong, and in which line and column for what is not JSON: a
/// NUL byte is not the end of a text. A text is also refused when it nests deeper than the rules
/// allow, or has a key twice in one object, of which a parser would keep one without a word.
nlohmann::json parse_json(std::string_view text, std::string_view origin,
                          const JsonRules& rules = {});
/// The same, with members in the order of the text. Looks for a member through all that come
/// before, so that an object may have 32768 of them.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view origin,
                                          const JsonRules& rules = {});

/// Throws as parse_json() does; takes no memory for values. Linear in the text.
void check_json(std::string_view text, std::string_view origin, const JsonRules& rules = {});

/// The whole number that `value` is. Throws the library's exception, as for a value of another
/// type, when it is no number, has a fraction or an exponent, or is not from `least` to `most`: the
/// library's own get<>() casts such a number without a word.
std::int64_t whole_number(const nlohmann::json& value, std::int64_t least, std::int64_t most);
std::int64_t whole_number(const nlohmann::ordered_json& value, std::int64_t least,
                          std::int64_t most);
/// The same, for all that an `Int` can hold, of at most 64 bits with a sign.
template <typename Int = std::int64_t, typename Json>
Int whole_number(const Json& value) {
  using Limits = std::numeric_limits<Int>;
  return static_cast<Int>(whole_number(value, Limits::min(), Limits::max()));
}

/// What an exception of the library says, without its number: of a key that is not there, of a
/// value of another type.
std::string json_reason(const std::exception& error);

}  // namespace atl
