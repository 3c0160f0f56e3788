#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace atl {

/// The types a setting can have.
using SettingValue = std::variant<std::int64_t, double, bool, std::string, std::vector<std::string>,
                                  std::vector<double>>;

/// One value of a TOML file, its key with the names of the tables it stands in.
struct TomlEntry {
  std::string key;     ///< "train.steps"
  int line = 0;        ///< from 1
  bool table = false;  ///< an empty table, which has no value
  bool known = false;  ///< `value` holds it; false for types no setting has: dates, mixed arrays
  SettingValue value;
  std::string text;  ///< the value as TOML, for messages
};

/// The values of a TOML text in the order of their lines; an empty table is an entry of its own.
/// Throws Error(kUser) with "origin:line:column" for a syntax error or a key given twice.
std::vector<TomlEntry> parse_toml(std::string_view text, const std::string& origin);

/// A value as TOML text that reads back as the same value.
std::string to_toml(const SettingValue& value);

}  // namespace atl
