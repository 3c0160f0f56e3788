// What other programs call keys and values, for messages about those that are none.

#include <algorithm>
#include <cctype>

#include "atoll/base/error.h"
#include "atoll/base/nearest.h"
#include "atoll/base/settings/settings.h"

namespace atl {

namespace {

// "learning_rate" of "Learning-Rate".
std::string plain_name(std::string_view typed) {
  std::string name;
  for (const char c : typed) {
    name += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

}  // namespace

void Settings::known_elsewhere_as(const std::string& key,
                                  std::initializer_list<const char*> names) {
  value_known_as(key, "", names);
}

void Settings::value_known_as(const std::string& key, const std::string& value,
                              std::initializer_list<const char*> names) {
  index_of(key, "");  // throws where the key is none
  for (const char* name : names) elsewhere_.insert_or_assign(name, Elsewhere{key, value, ""});
}

void Settings::nothing_known_as(std::initializer_list<const char*> names,
                                const std::string& advice) {
  for (const char* name : names) elsewhere_.insert_or_assign(name, Elsewhere{"", "", advice});
}

void Settings::word_elsewhere(const std::string& key, const std::string& value,
                              std::initializer_list<const char*> words) {
  index_of(key, "");
  for (const char* word : words) words_.insert_or_assign(key + " " + word, value);
}

// What is known of a name with its group counts before what is known of its last part, and a key's
// own last part before a name elsewhere that could be any value of another key.
const Settings::Elsewhere* Settings::find_elsewhere(std::string_view typed) const {
  const std::string name = plain_name(typed);
  const std::string word = last_part(name);
  const auto whole = elsewhere_.find(name);
  const auto part = elsewhere_.find(word);
  const auto found = whole != elsewhere_.end() ? whole : part;
  if (found == elsewhere_.end()) return nullptr;
  const bool is_exact = found->first.find('.') != std::string::npos || found->second.key.empty() ||
                        !found->second.value.empty();
  // "--data=x" is not outer.data.
  const bool is_own = !is_group(name) &&
                      std::any_of(settings_.begin(), settings_.end(), [&](const Setting& setting) {
                        return setting.key.ends_with("." + word);
                      });
  return is_own && !is_exact ? nullptr : &found->second;
}

std::string Settings::word_meant(const Setting& setting, std::string_view word) const {
  const std::vector<std::string>& names = setting.choices.names;
  const auto found = words_.find(setting.key + " " + plain_name(word));
  return found != words_.end() ? found->second : nearest_name(word, names);
}

Settings::Elsewhere Settings::meant_by(std::string_view typed, std::string_view value) const {
  const Elsewhere* found = find_elsewhere(typed);
  if (found == nullptr) return {};
  Elsewhere meant = *found;
  if (meant.key.empty() || !meant.value.empty() || value.empty()) return meant;
  const Setting& setting = find(meant.key);
  const std::vector<std::string>& names = setting.choices.names;
  if (names.empty()) return meant;
  const bool is_one = std::find(names.begin(), names.end(), value) != names.end();
  meant.value = is_one ? std::string(value) : word_meant(setting, value);
  return meant;
}

std::string Settings::advice_elsewhere(std::string_view typed, std::string_view value,
                                       std::string_view dashes) const {
  const Elsewhere meant = meant_by(typed, value);
  if (meant.key.empty()) return meant.advice;
  if (meant.value.empty()) return fmt::format("did you mean {}{}?", dashes, meant.key);
  if (!dashes.empty()) return fmt::format("did you mean {}{}={}?", dashes, meant.key, meant.value);
  const bool is_text = std::holds_alternative<std::string*>(find(meant.key).target);
  return fmt::format("did you mean {} = {}?", meant.key,
                     is_text ? atl::to_toml(SettingValue(meant.value)) : meant.value);
}

std::string Settings::nearest(std::string_view typed) const {
  if (const Elsewhere* found = find_elsewhere(typed)) return found->key;
  const std::string name = plain_name(typed);
  const std::string word = last_part(name);
  const std::string group(typed.substr(0, typed.rfind('.') + 1));
  std::vector<std::string> names;
  for (const Setting& setting : settings_) names.push_back(setting.key);
  return nearest_name(group + word, names);
}

}  // namespace atl
