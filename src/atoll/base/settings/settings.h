#pragma once

// The one schema of a program's settings: every key is registered once, with its type, range and
// meaning, and everything that reads, checks, explains or writes settings goes by that.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/base/settings/toml.h"

namespace atl {

/// The numbers a setting may take.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;   ///< low itself is not allowed
  bool high_open = false;  ///< high itself is not allowed

  bool contains(double value) const;
  /// "at least 1", "from 0 to below 1"; empty for all numbers.
  std::string text() const;
};

/// value >= low
inline Range at_least(double low) {
  return {.low = low};
}
/// value > low
inline Range above(double low) {
  return {.low = low, .low_open = true};
}
/// low <= value <= high
inline Range between(double low, double high) {
  return {.low = low, .high = high};
}
/// low <= value < high
inline Range from_below(double low, double high) {
  return {.low = low, .high = high, .high_open = true};
}

/// The words a setting may take.
struct Choices {
  std::vector<std::string> names;
};
/// `value` is one of `names`.
inline Choices one_of(std::initializer_list<const char*> names) {
  return {{names.begin(), names.end()}};
}

/// Who must have the same value.
enum class Scope : std::uint8_t {
  kHost,    ///< nobody: it is about the machine
  kIsland,  ///< the ranks of one island
  kRun,     ///< all islands of a run
};

/// One registered key.
struct Setting {
  /// The member it writes to.
  using Target = std::variant<std::int64_t*, double*, bool*, std::string*,
                              std::vector<std::string>*, std::vector<double>*>;

  std::string key;  ///< "train.steps"
  std::string doc;
  Target target;
  SettingValue default_value;
  Range range;
  Choices choices;
  std::string origin;  ///< "default", "recipes/kjv-demo.toml:12" or "--train.steps"
  Scope scope = Scope::kRun;
  bool is_fixed = false;  ///< steps that are taken depend on it, so a run that goes on must keep it

  SettingValue value() const;
  /// The value as TOML text.
  std::string toml() const;
  bool is_default() const { return origin == "default"; }
  /// "integer, at least 1"; for the reference and for messages.
  std::string type_text() const;

  /// Where it is registered: what its group does not say of it.
  Setting& fixed() {
    is_fixed = true;
    return *this;
  }
  Setting& with_scope(Scope value) {
    scope = value;
    return *this;
  }
};

/// Registered keys and the plain struct members behind them. Sources are read in order of
/// precedence, lowest first: the members' own values are the defaults, then load_toml, then
/// override. The registered members must outlive the Settings and stay where they are.
///
/// Every mistake is an Error(kUser) of one line that says where it stands: an unknown key (with the
/// nearest known one), a value of another type or out of range, a syntax error, a key given twice.
class Settings {
 public:
  /// Names a group of keys ("train" for "train.steps") for the reference, and the scope of those
  /// that are added next.
  void group(std::string name, std::string doc, Scope scope = Scope::kRun);
  /// Registers `key` and takes the member's present value as its default. What it returns is valid
  /// until the next is registered.
  Setting& add(std::string key, std::int64_t* target, std::string doc, Range range = {});
  Setting& add(std::string key, double* target, std::string doc, Range range = {});
  Setting& add(std::string key, bool* target, std::string doc);
  Setting& add(std::string key, std::string* target, std::string doc, Choices choices = {});
  Setting& add(std::string key, std::vector<std::string>* target, std::string doc);
  /// `range` is that of each element.
  Setting& add(std::string key, std::vector<double>* target, std::string doc, Range range = {});

  /// Says what other programs call `key` ("learning_rate" for optim.lr), for messages about keys
  /// that are none. Names are in lower case with '_' for '-'; they may have a group
  /// ("lora.dropout").
  void known_elsewhere_as(const std::string& key, std::initializer_list<const char*> names);
  /// The same for names that mean one value of `key`: "bf16" for train.dtype = bf16.
  void value_known_as(const std::string& key, const std::string& value,
                      std::initializer_list<const char*> names);
  /// Says what to do instead of keys of other programs that have no counterpart.
  void nothing_known_as(std::initializer_list<const char*> names, const std::string& advice);
  /// Says what other programs call `value`, one of the words that `key` may be: "gpu" for cuda.
  void word_elsewhere(const std::string& key, const std::string& value,
                      std::initializer_list<const char*> words);

  /// Takes the values of a TOML file. Integers may be written 1e6 or 1_000_000 when exact.
  void load_toml(const std::filesystem::path& path);
  /// The same for a text; `origin` stands in messages and origins where the path would.
  void load_toml_text(std::string_view text, const std::string& origin);
  /// Takes one entry of a file that has others beside settings.
  void take(const TomlEntry& entry, const std::string& origin);
  /// Takes one "--key=value" from the command line. A list is written a,b or ["a", "b"].
  void override(std::string_view argument);

  /// The setting of a key; throws Error(kUser) naming the nearest for an unknown one.
  const Setting& find(std::string_view key) const { return settings_[index_of(key, "")]; }
  /// The key that was most likely meant by `typed`, with or without a group; "" when none is near.
  std::string nearest(std::string_view typed) const;
  /// What a key of another program means.
  struct Elsewhere {
    std::string key;     ///< ours; empty: it has no counterpart, or nothing is known of it
    std::string value;   ///< of that key; empty: as it was given
    std::string advice;  ///< without a counterpart: what to do instead
  };
  /// What is known of `typed`, which was given `value`.
  Elsewhere meant_by(std::string_view typed, std::string_view value) const;
  /// The same as a sentence: "did you mean --optim.lr?". `dashes` is "--" for the command line, ""
  /// for a file. Empty when nothing is known of `typed`.
  std::string advice_elsewhere(std::string_view typed, std::string_view value,
                               std::string_view dashes) const;
  /// All settings in the order of registration.
  const std::vector<Setting>& all() const { return settings_; }

  /// Every value and where it came from, one line each.
  std::string describe() const;
  /// A TOML file that gives the present values, each with its origin in a comment.
  std::string to_toml() const;
  /// Every key with type, default and meaning, as Markdown.
  std::string markdown_reference() const;
  /// Every key with its value as TOML text, in order of registration.
  std::vector<std::pair<std::string, std::string>> key_values() const;

 private:
  Setting& add_setting(Setting setting);
  bool is_group(std::string_view key) const;
  std::size_t index_of(std::string_view key, std::string_view where,
                       std::string_view value = "") const;
  const Elsewhere* find_elsewhere(std::string_view typed) const;
  std::string word_meant(const Setting& setting, std::string_view word) const;
  void assign(std::size_t index, const SettingValue& value, const std::string& written,
              const std::string& origin);

  std::vector<Setting> settings_;
  std::vector<std::pair<std::string, std::string>> groups_;  // name, doc
  Scope scope_ = Scope::kRun;                                // of the last group
  std::map<std::string, Elsewhere, std::less<>> elsewhere_;  // by others' names
  std::map<std::string, std::string, std::less<>> words_;    // "device.kind gpu", "cuda"
};

}  // namespace atl
