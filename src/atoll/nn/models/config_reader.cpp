#include "atoll/nn/models/config_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "atoll/base/json.h"
#include "atoll/nn/models/bookkeeping.h"
#include "atoll/nn/models/warn_once.h"

namespace atl::nn {

using nlohmann::json;

namespace {

// A value as a message shows it: whole when short.
std::string shown(const json& value) {
  constexpr std::size_t kLongest = 200;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

struct ConfigReader::Impl {
  json object;
  std::string origin;
  std::set<std::string, std::less<>> seen;

  // The field's value, or nullptr when it is absent or null.
  const json* find(const char* field) {
    seen.insert(field);
    const auto at = object.find(field);
    return at == object.end() || at->is_null() ? nullptr : &*at;
  }
  const json& require(const char* field) {
    if (const json* value = find(field)) return *value;
    throw user_error("{} has no field \"{}\", which this model family needs", origin, field);
  }
  Error wrong_type(const char* field, const char* wanted, const json& value) const {
    return user_error("{}: \"{}\" must be {}, not {}", origin, field, wanted, shown(value));
  }
};

ConfigReader::ConfigReader(std::string_view text, std::string origin)
    : impl_(std::make_unique<Impl>()) {
  impl_->origin = std::move(origin);
  impl_->object = parse_json(text, impl_->origin);
  if (!impl_->object.is_object()) {
    throw damaged_error("{} is not a JSON object", impl_->origin);
  }
}

ConfigReader::~ConfigReader() = default;

std::int64_t ConfigReader::integer(const char* field) {
  const json& value = impl_->require(field);
  // Above 2^40 no model's size makes sense, and products of two sizes still fit 64 bits' checks.
  if (!value.is_number_integer() || value < 0 || value > (std::int64_t{1} << 40)) {
    throw impl_->wrong_type(field, "a whole number from 0 to 2^40", value);
  }
  return value.get<std::int64_t>();
}

std::int64_t ConfigReader::integer(const char* field, std::int64_t fallback) {
  return impl_->find(field) == nullptr ? fallback : integer(field);
}

double ConfigReader::number(const char* field) {
  const json& value = impl_->require(field);
  if (!value.is_number()) throw impl_->wrong_type(field, "a number", value);
  return value.get<double>();
}

double ConfigReader::number(const char* field, double fallback) {
  return impl_->find(field) == nullptr ? fallback : number(field);
}

bool ConfigReader::boolean(const char* field, bool fallback) {
  const json* value = impl_->find(field);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) throw impl_->wrong_type(field, "true or false", *value);
  return value->get<bool>();
}

std::string ConfigReader::text(const char* field) {
  const json& value = impl_->require(field);
  if (!value.is_string()) throw impl_->wrong_type(field, "a text", value);
  return value.get<std::string>();
}

std::string ConfigReader::text(const char* field, const std::string& fallback) {
  return impl_->find(field) == nullptr ? fallback : text(field);
}

std::vector<std::string> ConfigReader::texts(const char* field) {
  const json* value = impl_->find(field);
  if (value == nullptr) return {};
  const auto is_text = [](const json& element) { return element.is_string(); };
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_text)) {
    throw impl_->wrong_type(field, "a list of texts", *value);
  }
  return value->get<std::vector<std::string>>();
}

std::vector<double> ConfigReader::numbers(const char* field) {
  const json* value = impl_->find(field);
  if (value == nullptr) return {};
  const auto is_number = [](const json& element) { return element.is_number(); };
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_number)) {
    throw impl_->wrong_type(field, "a list of numbers", *value);
  }
  return value->get<std::vector<double>>();
}

std::vector<std::int64_t> ConfigReader::integers(const char* field) {
  const json* value = impl_->find(field);
  if (value == nullptr) return {};
  const auto is_integer = [](const json& element) { return element.is_number_integer(); };
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_integer)) {
    throw impl_->wrong_type(field, "a list of whole numbers", *value);
  }
  return value->get<std::vector<std::int64_t>>();
}

std::int64_t ConfigReader::token_id(const char* field, std::int64_t vocab_size) {
  const json* value = impl_->find(field);
  if (value == nullptr) return -1;
  const json ids = value->is_array() ? *value : json::array({*value});
  const auto is_id = [](const json& id) {
    return id.is_number_unsigned() || (id.is_number_integer() && id.get<std::int64_t>() == -1);
  };
  if (ids.empty() || !std::all_of(ids.begin(), ids.end(), is_id)) {
    throw impl_->wrong_type(field, "a token's id, a list of them, or null or -1 for none", *value);
  }
  const auto found = std::find_if(ids.begin(), ids.end(), [&](const json& id) {
    return id.is_number_unsigned() &&
           id.get<std::uint64_t>() < static_cast<std::uint64_t>(vocab_size);
  });
  return found == ids.end() ? -1 : found->get<std::int64_t>();
}

std::unique_ptr<ConfigReader> ConfigReader::object(const char* field) {
  const json* value = impl_->find(field);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) throw impl_->wrong_type(field, "an object", *value);
  return std::make_unique<ConfigReader>(value->dump(), impl_->origin + ": " + field);
}

bool ConfigReader::contains(const char* field) const {
  return impl_->object.contains(field);
}

bool ConfigReader::is_null(const char* field) const {
  return impl_->find(field) == nullptr;
}

Error ConfigReader::refused(const char* field, std::string_view why) const {
  return user_error("{}: \"{}\" is {}, {}", impl_->origin, field,
                    shown(impl_->object.value(field, json())), why);
}

void ConfigReader::only(const char* field, std::string_view allowed) {
  const json* value = impl_->find(field);
  if (value == nullptr || *value == json::parse(allowed)) return;
  throw user_error("{}: \"{}\" is {}, and atoll computes this family only with {}", impl_->origin,
                   field, shown(*value), allowed);
}

void ConfigReader::ignore(std::initializer_list<const char*> fields) {
  impl_->seen.insert(fields.begin(), fields.end());
}

void ConfigReader::finish() const {
  std::vector<std::string> passed_over;
  // transformers 5 asks it of any family.
  if (const auto causal = impl_->object.find("is_causal");
      causal != impl_->object.end() && *causal == false) {
    throw refused("is_causal", "so that every token sees all others, and atoll's see those before");
  }
  for (const auto& [field, value] : impl_->object.items()) {
    if (value.is_null() || impl_->seen.contains(field) || is_bookkeeping(field)) continue;
    const bool is_off = value.is_boolean() && !value.get<bool>();
    if (value.is_structured() || (is_named_like_architecture(field) && !is_off)) {
      throw user_error(
          "{}: atoll does not know the field \"{}\" (here {}) and will not guess whether it "
          "changes "
          "the mathematics; remove it if it does not",
          impl_->origin, field, shown(value));
    }
    passed_over.push_back(fmt::format("\"{}\"", field));
  }
  if (!passed_over.empty()) {
    warn_once(fmt::format("{}: atoll passes over {}, which it does not know", impl_->origin,
                          fmt::join(passed_over, ", ")));
  }
}

}  // namespace atl::nn
