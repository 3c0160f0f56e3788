#include "atoll/base/settings/toml_mistake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace atl {

namespace {

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool is_key(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

std::string lower(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

bool is_one_of(const std::string& word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A text or a path, as people write them, and neither a number nor anything that is quoted.
bool is_bare_text(std::string_view text) {
  if (text.empty() || text.find_first_of("\"'[]{}=") != text.npos) return false;
  const auto first = static_cast<unsigned char>(text.front());
  const bool is_path = text.starts_with("./") || text.starts_with("../") || text == ".";
  return std::isalpha(first) != 0 || first >= 0x80 || is_path || first == '/' || first == '~' ||
         first == '_';
}

// "[a.txt, b.txt]" as a list of texts; empty where it is none.
std::string quoted_list(std::string_view list) {
  if (!list.starts_with('[') || !list.ends_with(']')) return "";
  const std::string_view inner = list.substr(1, list.size() - 2);
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < inner.size();) {
    const std::size_t end = std::min(inner.find(',', begin), inner.size());
    const std::string_view word = trimmed(inner.substr(begin, end - begin));
    if (!is_bare_text(word)) return "";
    words.push_back(fmt::format("\"{}\"", word));
    begin = end + 1;
  }
  return words.empty() ? "" : fmt::format("[{}]", fmt::join(words, ", "));
}

std::string advice_for_value(std::string_view key, std::string_view value) {
  const std::string word = lower(value);
  if (value.empty()) return fmt::format("{} has no value; give one, or remove the line", key);
  if (is_one_of(word, {"true", "yes", "on"})) return fmt::format("write {} = true", key);
  if (is_one_of(word, {"false", "no", "off"})) return fmt::format("write {} = false", key);
  if (is_one_of(word, {"none", "null", "nil"})) {
    return fmt::format("TOML has no {}; remove the line, and {} is as by default", value, key);
  }
  if (is_bare_text(value)) {
    return fmt::format("a text stands in quotes; write {} = \"{}\"", key, value);
  }
  if (const std::string list = quoted_list(value); !list.empty()) {
    return fmt::format("texts stand in quotes; write {} = {}", key, list);
  }
  if (value.front() == '"' && value.find('\\') != value.npos) {
    return "in double quotes a backslash begins a code such as \\n; write it twice, or take single "
           "quotes";
  }
  const std::string_view digits = value.substr(value.find_first_not_of("+-") == 1 ? 1 : 0);
  if (!digits.empty() &&
      (std::isdigit(static_cast<unsigned char>(digits.front())) != 0 || digits.front() == '.')) {
    return fmt::format("{} is no number; they are written 1000, 1_000, 1e3 or 0.5", value);
  }
  return "";
}

}  // namespace

std::string advice_for_toml(std::string_view line) {
  constexpr std::size_t kLongest = 200;
  const bool is_plain = std::all_of(line.begin(), line.end(), [](unsigned char c) {
    return c >= 0x20 || c == '\t' || c == '\r';
  });
  if (!is_plain || line.size() > kLongest) return "";
  line = trimmed(line);
  if (line.starts_with('{')) {
    return "that looks like JSON, and TOML is wanted: lines `key = value` below a line `[group]`";
  }
  const std::size_t equals = line.find('=');
  const std::size_t colon = line.find(':');
  if (colon < equals && is_key(line.substr(0, colon))) {
    return fmt::format(
        "that looks like YAML, and TOML is wanted: `{} = ...` below a line `[group]`",
        line.substr(0, colon));
  }
  if (equals == line.npos) return "";
  const std::string_view key = trimmed(line.substr(0, equals));
  std::string_view value = line.substr(equals + 1);
  if (const std::size_t comment = value.find(" #"); comment != value.npos) {
    value = value.substr(0, comment);
  }
  return is_key(key) ? advice_for_value(key, trimmed(value)) : "";
}

}  // namespace atl
