#include "atoll/base/settings/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/base/nearest.h"

namespace atl {

namespace {

constexpr std::string_view kCommandLine = "--";

// The integer that a number is, if it is exactly one.
std::optional<std::int64_t> exact_integer(double value) {
  if (value != std::floor(value) || std::abs(value) >= 0x1p63) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

// TOML's number grammar, so that a value means the same in a file and on the command line: digits
// may be grouped by single underscores.
std::optional<SettingValue> parse_number(std::string_view text) {
  std::string digits;
  // from_chars takes these and TOML does not: +-5, 007, .5, 5.
  const std::size_t first = text.find_first_not_of("+-");
  if (first == text.npos || first > 1) return std::nullopt;
  if (text[first] == '.' || text.ends_with('.')) return std::nullopt;
  if (text.size() > first + 1 && text[first] == '0' && std::isdigit(text[first + 1]) != 0) {
    return std::nullopt;
  }
  const auto is_digit = [&](std::size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  for (std::size_t i = text.starts_with('+') ? 1 : 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  const char* end = digits.data() + digits.size();
  std::int64_t integer = 0;
  if (const auto read = std::from_chars(digits.data(), end, integer);
      read.ec == std::errc() && read.ptr == end) {
    return integer;
  }
  double number = 0;
  const auto read = std::from_chars(digits.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

std::vector<std::string> parse_list(const std::string& text, const std::string& where) {
  if (text.starts_with('[')) {
    const std::vector<TomlEntry> entries = parse_toml("list = " + text, where);
    if (entries.size() == 1 && entries[0].known &&
        std::holds_alternative<std::vector<std::string>>(entries[0].value)) {
      return std::get<std::vector<std::string>>(entries[0].value);
    }
    throw user_error("{} wants a list of strings: a,b or [\"a\", \"b\"]", where);
  }
  std::vector<std::string> list;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    list.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return list;
}

// "0.7,0.3" or "[0.7, 0.3]" as numbers; the text itself when it is neither.
SettingValue parse_numbers(const std::string& text) {
  std::string inner = text;
  if (inner.starts_with('[') && inner.ends_with(']')) inner = inner.substr(1, inner.size() - 2);
  std::vector<double> numbers;
  for (std::size_t begin = 0; begin < inner.size();) {
    const std::size_t comma = std::min(inner.find(',', begin), inner.size());
    std::string_view word = std::string_view(inner).substr(begin, comma - begin);
    while (word.starts_with(' ')) word.remove_prefix(1);
    const std::optional<SettingValue> number = parse_number(word);
    if (!number) return text;
    numbers.push_back(std::visit(
        [](const auto& value) {
          if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
            return static_cast<double>(value);
          } else {
            return 0.0;
          }
        },
        *number));
    begin = comma + 1;
  }
  return numbers;
}

// What a command-line argument means for a setting of this type. A text that does not fit stays a
// string, which assign() refuses with the same words as it refuses a file's.
SettingValue parse_argument(const Setting& setting, const std::string& text) {
  if (std::holds_alternative<std::string*>(setting.target)) return text;
  if (std::holds_alternative<std::vector<std::string>*>(setting.target)) {
    return parse_list(text, "--" + setting.key);
  }
  if (std::holds_alternative<std::vector<double>*>(setting.target)) return parse_numbers(text);
  if (std::holds_alternative<bool*>(setting.target)) {
    if (text == "true") return true;
    if (text == "false") return false;
    return text;
  }
  return parse_number(text).value_or(text);
}

// `value` as the type that `setting` has, if it can be that without loss.
std::optional<SettingValue> convert(const Setting& setting, const SettingValue& value) {
  const auto* number = std::get_if<double>(&value);
  const auto* integer = std::get_if<std::int64_t>(&value);
  if (std::holds_alternative<std::int64_t*>(setting.target) && number != nullptr) {
    const std::optional<std::int64_t> exact = exact_integer(*number);
    return exact ? std::optional<SettingValue>(*exact) : std::nullopt;
  }
  if (std::holds_alternative<double*>(setting.target)) {
    if (integer != nullptr) return static_cast<double>(*integer);
    if (number == nullptr || !std::isfinite(*number)) return std::nullopt;
  }
  if (std::holds_alternative<std::vector<std::string>*>(setting.target)) {
    if (const auto* one = std::get_if<std::string>(&value)) return std::vector<std::string>{*one};
  }
  if (std::holds_alternative<std::vector<double>*>(setting.target)) {
    if (integer != nullptr) return std::vector<double>{static_cast<double>(*integer)};
    if (number != nullptr) return std::vector<double>{*number};
    const auto* strings = std::get_if<std::vector<std::string>>(&value);
    if (strings != nullptr && strings->empty()) return std::vector<double>{};
  }
  // Both variants list the types in the same order.
  if (setting.target.index() != value.index()) return std::nullopt;
  return value;
}

// What was meant by a number as people write it elsewhere: 8k, 0,001, 1,000,000, 10%.
std::string advice_for_number(std::string text) {
  if (text.find_first_of("0123456789") == text.npos) return "";
  double factor = 1;
  if (!text.empty()) {
    const std::string_view units = "kKmMbBgG%";
    const double factors[] = {1e3, 1e3, 1e6, 1e6, 1e9, 1e9, 1e9, 1e9, 0.01};
    if (const std::size_t unit = units.find(text.back()); unit != units.npos) {
      factor = factors[unit];
      text.pop_back();
    }
  }
  if (std::count(text.begin(), text.end(), ',') == 1 && text.starts_with("0,")) text[1] = '.';
  std::erase(text, ',');
  if (text.starts_with('.')) text.insert(0, "0");
  const std::optional<SettingValue> number = parse_number(text);
  if (!number) return "; numbers are written 1000, 1_000, 1e3 or 0.5";
  const auto* whole = std::get_if<std::int64_t>(&*number);
  const double value =
      (whole != nullptr ? static_cast<double>(*whole) : std::get<double>(*number)) * factor;
  const std::optional<std::int64_t> exact = exact_integer(value);
  return exact ? fmt::format("; did you mean {}?", *exact)
               : fmt::format("; did you mean {}?", value);
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void Settings::group(std::string name, std::string doc, Scope scope) {
  groups_.emplace_back(std::move(name), std::move(doc));
  scope_ = scope;
}

Setting& Settings::add_setting(Setting setting) {
  for (const Setting& other : settings_) {
    ATOLL_CHECK(other.key != setting.key, "setting {} is registered twice", setting.key);
  }
  setting.default_value = setting.value();
  setting.origin = "default";
  setting.scope = scope_;
  return settings_.emplace_back(std::move(setting));
}

Setting& Settings::add(std::string key, std::int64_t* target, std::string doc, Range range) {
  return add_setting({std::move(key), std::move(doc), target, {}, range, {}, {}});
}
Setting& Settings::add(std::string key, double* target, std::string doc, Range range) {
  return add_setting({std::move(key), std::move(doc), target, {}, range, {}, {}});
}
Setting& Settings::add(std::string key, bool* target, std::string doc) {
  return add_setting({std::move(key), std::move(doc), target, {}, {}, {}, {}});
}
Setting& Settings::add(std::string key, std::string* target, std::string doc, Choices choices) {
  return add_setting({std::move(key), std::move(doc), target, {}, {}, std::move(choices), {}});
}
Setting& Settings::add(std::string key, std::vector<std::string>* target, std::string doc) {
  return add_setting({std::move(key), std::move(doc), target, {}, {}, {}, {}});
}
Setting& Settings::add(std::string key, std::vector<double>* target, std::string doc, Range range) {
  return add_setting({std::move(key), std::move(doc), target, {}, range, {}, {}});
}

bool Settings::is_group(std::string_view key) const {
  const std::string prefix = fmt::format("{}.", key);
  return std::any_of(settings_.begin(), settings_.end(),
                     [&](const Setting& setting) { return setting.key.starts_with(prefix); });
}

std::size_t Settings::index_of(std::string_view key, std::string_view where,
                               std::string_view value) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < settings_.size(); ++i) {
    if (settings_[i].key == key) return i;
    names.push_back(settings_[i].key);
  }
  const std::string dashes = where == kCommandLine ? "--" : "";
  const std::string at = where.empty() || !dashes.empty() ? "" : fmt::format(" in {}", where);
  if (const std::string known = advice_elsewhere(key, value, dashes); !known.empty()) {
    throw user_error("unknown key {}{}{}; {}", dashes, key, at, known);
  }
  if (is_group(key)) {
    std::erase_if(names, [&](const std::string& name) { return !name.starts_with(key); });
    throw user_error("{}{}{} is a group of keys, not a key; it has {}", dashes, key, at,
                     joined(names));
  }
  const std::string nearest = this->nearest(key);
  throw user_error("unknown key {}{}{}; {}", dashes, key, at,
                   nearest.empty() ? "`atoll config` lists all keys"
                                   : fmt::format("did you mean {}{}?", dashes, nearest));
}

void Settings::assign(std::size_t index, const SettingValue& value, const std::string& written,
                      const std::string& origin) {
  Setting& setting = settings_[index];
  const std::string where = origin.starts_with("--") ? "" : origin + ": ";
  const std::string name = where.empty() ? origin : setting.key;
  const std::optional<SettingValue> converted = convert(setting, value);
  if (!converted) {
    const bool is_number = std::holds_alternative<std::int64_t*>(setting.target) ||
                           std::holds_alternative<double*>(setting.target);
    const auto* text = std::get_if<std::string>(&value);
    throw user_error("{}{} wants {}, not {}{}", where, name, setting.type_text(), written,
                     is_number && text != nullptr ? advice_for_number(*text) : "");
  }
  const auto in_range = [&](double number) {
    if (setting.range.contains(number)) return;
    throw user_error("{}{} is {}; it must be {}", where, name, written, setting.range.text());
  };
  if (const auto* integer = std::get_if<std::int64_t>(&*converted)) {
    in_range(static_cast<double>(*integer));
  }
  if (const auto* number = std::get_if<double>(&*converted)) in_range(*number);
  if (const auto* numbers = std::get_if<std::vector<double>>(&*converted)) {
    for (const double number : *numbers) in_range(number);
  }
  const std::vector<std::string>& names = setting.choices.names;
  const auto* word = std::get_if<std::string>(&*converted);
  if (!names.empty() && word != nullptr &&
      std::find(names.begin(), names.end(), *word) == names.end()) {
    const std::string nearest = word_meant(setting, *word);
    throw user_error("{}{} is {}; it must be one of {}{}", where, name, written, joined(names),
                     nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
  }
  std::visit(
      [&](auto* target) {
        *target = std::get<std::remove_pointer_t<decltype(target)>>(*converted);
      },
      setting.target);
  setting.origin = origin;
}

void Settings::load_toml(const std::filesystem::path& path) {
  load_toml_text(read_text_file(path), path.string());
}

void Settings::load_toml_text(std::string_view text, const std::string& origin) {
  for (const TomlEntry& entry : parse_toml(text, origin)) take(entry, origin);
}

void Settings::take(const TomlEntry& entry, const std::string& origin) {
  const std::string where = fmt::format("{}:{}", origin, entry.line);
  if (entry.table && is_group(entry.key)) return;
  const auto* word = entry.known ? std::get_if<std::string>(&entry.value) : nullptr;
  const std::size_t index =
      index_of(entry.key, where, word != nullptr ? std::string_view(*word) : entry.text);
  if (!entry.known) {
    throw user_error("{}: {} wants {}, not {}", where, entry.key, settings_[index].type_text(),
                     entry.text);
  }
  assign(index, entry.value, entry.text, where);
}

void Settings::override(std::string_view argument) {
  const std::size_t equals = argument.find('=');
  if (!argument.starts_with("--")) {
    throw user_error("unexpected argument {}; settings are written --key=value", argument);
  }
  const std::string key(argument.substr(2, equals == argument.npos ? equals : equals - 2));
  const std::size_t index =
      index_of(key, kCommandLine, equals == argument.npos ? "" : argument.substr(equals + 1));
  const std::string origin = "--" + key;
  if (equals == argument.npos) {
    throw user_error("{} has no value; write {}=VALUE ({})", origin, origin,
                     settings_[index].type_text());
  }
  if (settings_[index].origin == origin) {
    throw user_error("{} is given twice on the command line; give it once", origin);
  }
  const std::string text(argument.substr(equals + 1));
  // A recipe is UTF-8, too, and so is every file that a setting is written to.
  if (const std::string problem = utf8_problem(text); !problem.empty()) {
    throw user_error("{}: {}; settings are kept in files of UTF-8, so rename what it stands for",
                     origin, problem);
  }
  const SettingValue value = parse_argument(settings_[index], text);
  assign(index, value, std::holds_alternative<std::string>(value) ? atl::to_toml(value) : text,
         origin);
}

}  // namespace atl
