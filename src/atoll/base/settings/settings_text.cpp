// What Settings writes: for people, for files, for the documentation.

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/base/settings/settings.h"

namespace atl {

namespace {

std::string group_of(const std::string& key) {
  return key.substr(0, std::min(key.find('.'), key.size()));
}

// A table cell must not end at a `|` in the text.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

bool Range::contains(double value) const {
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string Range::text() const {
  if (std::isinf(low) && std::isinf(high)) return "";
  if (std::isinf(high)) return fmt::format("{} {}", low_open ? "above" : "at least", low);
  if (std::isinf(low)) return fmt::format("{} {}", high_open ? "below" : "at most", high);
  return fmt::format("{} {} to {}{}", low_open ? "above" : "from", low, high_open ? "below " : "",
                     high);
}

SettingValue Setting::value() const {
  return std::visit([](const auto* member) -> SettingValue { return *member; }, target);
}

std::string Setting::type_text() const {
  static constexpr const char* kNames[] = {"an integer", "a number",          "true or false",
                                           "a string",   "a list of strings", "a list of numbers"};
  if (!choices.names.empty()) return fmt::format("one of {}", fmt::join(choices.names, ", "));
  const std::string allowed = range.text();
  return kNames[target.index()] + (allowed.empty() ? "" : ", " + allowed);
}

std::string Settings::describe() const {
  std::size_t key_width = 0;
  std::size_t value_width = 0;
  for (const Setting& setting : settings_) {
    key_width = std::max(key_width, setting.key.size());
    const std::size_t width = atl::to_toml(setting.value()).size();
    if (width <= 30) value_width = std::max(value_width, width);  // one long path widens no table
  }
  std::string out;
  for (const Setting& setting : settings_) {
    out += fmt::format("{:<{}}  {:<{}}  {}\n", setting.key, key_width,
                       atl::to_toml(setting.value()), value_width, setting.origin);
  }
  return out;
}

std::string Settings::to_toml() const {
  std::string out;
  std::string group;
  for (const Setting& setting : settings_) {
    const std::string name = group_of(setting.key);
    if (name != group && name != setting.key) {
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", name);
      group = name;
    }
    std::string origin = setting.origin;
    // A control character in a file's name would end the comment, or be no TOML.
    std::replace_if(
        origin.begin(), origin.end(), [](unsigned char c) { return c < 0x20; }, '?');
    const std::string member = name == setting.key ? name : setting.key.substr(name.size() + 1);
    out += fmt::format("{} = {}  # {}\n", member, atl::to_toml(setting.value()), origin);
  }
  return out;
}

std::string Settings::markdown_reference() const {
  // A group named "device.fake" takes those of "device" that begin so.
  const auto section_of = [&](const std::string& key) {
    std::string name = group_of(key);
    for (const auto& [documented, doc] : groups_) {
      if (documented.size() > name.size() && key.starts_with(documented)) name = documented;
    }
    return name;
  };
  std::string out;
  std::string group;
  for (const Setting& setting : settings_) {
    if (const std::string name = section_of(setting.key); name != group) {
      group = name;
      out += fmt::format("{}## {}\n\n", out.empty() ? "" : "\n", group);
      for (const auto& [documented, doc] : groups_) {
        if (documented == group) out += doc + "\n\n";
      }
      out += "| key | type | default | meaning |\n|---|---|---|---|\n";
    }
    out += fmt::format("| `{}` | {} | `{}` | {} |\n", setting.key, cell(setting.type_text()),
                       cell(atl::to_toml(setting.default_value)), cell(setting.doc));
  }
  return out;
}

std::string Setting::toml() const {
  return atl::to_toml(value());
}

std::vector<std::pair<std::string, std::string>> Settings::key_values() const {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Setting& setting : settings_) {
    pairs.emplace_back(setting.key, setting.toml());
  }
  return pairs;
}

}  // namespace atl
