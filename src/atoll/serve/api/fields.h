#pragma once

// Fields of a request's JSON object as a table: it checks requests, and openapi.json is made of it.

#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/serve/api/api_error.h"
#include "atoll/serve/api/json_text.h"

namespace atl::serve::api {

/// What a field's value is.
enum class FieldType {
  kBoolean,
  kInteger,  ///< without a fraction
  kNumber,
  kString,
  kObject,
  kArray,
  kOther,    ///< several of these; `take` looks
  kIgnored,  ///< anything: the field changes no answer
  kRefused,  ///< nothing: the field would change the answer, and this is not done
};

/// What is known of a field without knowing where it goes.
struct FieldRule {
  const char* name = "";
  FieldType type = FieldType::kOther;
  const char* help = "";  ///< a sentence; of kRefused: what to do instead
  double least = -std::numeric_limits<double>::infinity();  ///< of a number
  double most = std::numeric_limits<double>::infinity();
  const char* schema = "";  ///< JSON schema of kOther, and of items and members
  bool is_required = false;
  bool is_above_least = false;  ///< `least` itself is out of bounds
};

/// A field of requests that are read into a `T`. `take` gets a value of the rule's type, within its
/// bounds, and throws ApiError for what is wrong still.
template <typename T>
struct Field {
  FieldRule rule;
  std::function<void(const Json& value, T& into)> take;
};

/// The value of a field, checked by its rule; null where it is absent or null, which mean the same.
/// `where` stands before its name in errors: "stream_options.". Throws ApiError(400).
const Json* find_field(const Json& object, const FieldRule& rule, std::string_view where);

/// Reads the fields of a table.
template <typename T>
void read_fields(const Json& object, const std::vector<Field<T>>& fields, T& into,
                 std::string_view where = "") {
  for (const Field<T>& field : fields) {
    const Json* value = find_field(object, field.rule, where);
    if (value != nullptr && field.take) field.take(*value, into);
  }
}

/// The rules of a table.
template <typename T>
std::vector<FieldRule> rules_of(const std::vector<Field<T>>& fields) {
  std::vector<FieldRule> rules;
  for (const Field<T>& field : fields) rules.push_back(field.rule);
  return rules;
}

/// Throws ApiError(400) naming the first member of `object` that no rule is of.
void refuse_unknown(const Json& object, const std::vector<FieldRule>& rules,
                    std::string_view where = "");

/// The JSON object that a request's body is. Throws ApiError(400) for anything else.
Json parse_body(std::string_view body);

/// A number that a whole-number field holds, of 64 bits; those beyond end as the nearest.
std::int64_t integer_of(const Json& value);

}  // namespace atl::serve::api
