#include "atoll/base/settings/toml.h"

#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/settings/toml_depth.h"
#include "atoll/base/settings/toml_mistake.h"

namespace atl {

namespace {

std::string one_line(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& typed) { out << typed; });
  std::string text = out.str();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// All strings or all numbers; an empty array counts as strings.
bool read_array(const toml::array& array, SettingValue& value) {
  std::vector<std::string> strings;
  std::vector<double> numbers;
  for (const toml::node& element : array) {
    if (element.is_string()) strings.push_back(element.as_string()->get());
    if (element.is_number()) numbers.push_back(*element.value<double>());
  }
  if (strings.size() + numbers.size() != array.size()) return false;
  if (!strings.empty() && !numbers.empty()) return false;
  if (numbers.empty()) {
    value = std::move(strings);
  } else {
    value = std::move(numbers);
  }
  return true;
}

bool read_value(const toml::node& node, SettingValue& value) {
  if (const auto* integer = node.as_integer()) {
    value = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    value = number->get();
  } else if (const auto* boolean = node.as_boolean()) {
    value = boolean->get();
  } else if (const auto* string = node.as_string()) {
    value = string->get();
  } else if (const auto* array = node.as_array()) {
    return read_array(*array, value);
  } else {
    return false;
  }
  return true;
}

void flatten(const toml::table& table, const std::string& prefix, std::vector<TomlEntry>& entries) {
  for (const auto& [name, node] : table) {
    TomlEntry entry;
    entry.key = prefix + std::string(name.str());
    entry.line = static_cast<int>(name.source().begin.line);
    const toml::table* inner = node.as_table();
    if (inner != nullptr && !inner->empty()) {
      flatten(*inner, entry.key + ".", entries);
      continue;
    }
    entry.table = inner != nullptr;
    entry.known = read_value(node, entry.value);
    entry.text = entry.known ? to_toml(entry.value) : one_line(node);
    entries.push_back(std::move(entry));
  }
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

struct Writer {
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(const std::vector<std::string>& value) const {
    std::string out = "[";
    for (const std::string& element : value) {
      if (out.size() > 1) out += ", ";
      out += quoted(element);
    }
    return out + "]";
  }
  std::string operator()(const std::vector<double>& value) const {
    return fmt::format("[{}]", fmt::join(value, ", "));
  }
};

bool parses(std::string_view text) {
  try {
    [[maybe_unused]] const toml::table table = toml::parse(text);
    return true;
  } catch (const toml::parse_error&) {
    return false;
  }
}

// A line of a text, counted from 1.
std::string_view line_of(std::string_view text, std::size_t number) {
  for (std::size_t i = 1; i < number && !text.empty(); ++i) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::vector<TomlEntry> parse_toml(std::string_view text, const std::string& origin) {
  check_toml_depth(text, origin);
  std::vector<TomlEntry> entries;
  try {
    flatten(toml::parse(text, origin), "", entries);
  } catch (const toml::parse_error& error) {
    const std::string_view line = line_of(text, error.source().begin.line);
    // A line that is right by itself stands in something that an earlier one has opened.
    std::string description = parses(line) ? "" : advice_for_toml(line);
    if (description.empty()) description = error.description();
    std::replace(description.begin(), description.end(), '\n', ' ');
    if (description.starts_with("Error ")) description.erase(0, 6);  // the line says so already
    throw user_error("{}:{}:{}: {}", origin, error.source().begin.line, error.source().begin.column,
                     description);
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TomlEntry& a, const TomlEntry& b) { return a.line < b.line; });
  return entries;
}

std::string to_toml(const SettingValue& value) {
  return std::visit(Writer(), value);
}

}  // namespace atl
