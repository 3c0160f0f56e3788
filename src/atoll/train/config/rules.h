#pragma once

// What settings refuse: a setting is registered with its rules, one interpreter refuses by them,
// and `atoll config` and docs/configuration.md say them as part of the setting's meaning.

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/train/config/config.h"

namespace atl::train {

/// Some values of a setting, each as a command line gives it: "ps", "2", "true".
struct Values {
  std::vector<std::string> listed;  ///< empty: all but the default
  std::string example;              ///< one that a remedy names

  Values() = default;
  Values(const char* one) : listed{one}, example(one) {}
  Values(std::initializer_list<const char*> some)
      : listed(some.begin(), some.end()), example(*some.begin()) {}
  explicit Values(std::vector<std::string> some) : listed(std::move(some)), example(listed.at(0)) {}

  /// Whether `value` is one of them, where `usual` is the default.
  bool include(const SettingValue& value, const SettingValue& usual) const;
  /// Whether `value` is listed.
  bool lists(const SettingValue& value) const;
};
/// All values but the default; `example` is one of them.
Values changed(const char* example);

/// What one setting demands of another.
struct Rule {
  enum class Kind {
    kOnlyWith,   ///< it may be given only where the other has one of `others`
    kNeeds,      ///< where it has one of `values`, the other must have one of `others`
    kNotBeside,  ///< where it has one of `values`, the other must have none of `others`
    kSettledBy,  ///< it may not be given where the other has one of `others`
  };
  Kind kind;
  std::size_t setting;  ///< index in Settings::all
  Values values;        ///< of kOnlyWith and kSettledBy with none listed: any that is given
  std::string other_key;
  std::size_t other = 0;  ///< index of `other_key`
  Values others;
  std::string why;  ///< a clause: "the servers have the optimizer's state"
  /// The defaults of both. Settings made of a config that is filled have others.
  SettingValue usual = {}, other_usual = {};
};

/// A change after which a rule is kept: `key` set to `value`, or taken out of the recipe.
struct Remedy {
  std::string key;
  std::string value;  ///< empty: taken out
};
/// The remedies that a refusal names; for a rule that `settings` break.
std::vector<Remedy> remedies(const Rule& rule, const Settings& settings);

/// One line that names both settings with their values, and the remedies; empty where the rule is
/// kept.
std::string refusal(const Rule& rule, const Settings& settings);

/// What only code can check. It throws Error(kUser).
using Check = void (*)(const TrainConfig& config, const Settings& settings);

/// The rules of all settings, in the order of registration.
class Rules {
 public:
  void add(Rule rule) { rules_.push_back(std::move(rule)); }
  /// `sentence` says for people what `check` demands; empty: the setting's meaning does.
  void add(std::size_t setting, std::string sentence, Check check);
  /// Finds the settings that rules name, and says the rules of each; once all are registered, with
  /// their defaults.
  void resolve(const Settings& settings);

  /// Throws Error(kUser) for the first rule that is broken: declared ones first, then checks.
  /// Only the rules of settings whose key begins with `prefix`.
  void check(const TrainConfig& config, const Settings& settings,
             std::string_view prefix = "") const;
  /// The rules of one setting as sentences; empty where it has none.
  const std::string& text_of(std::size_t setting) const { return texts_.at(setting); }
  const std::vector<Rule>& all() const { return rules_; }

 private:
  struct Coded {
    std::size_t setting;
    std::string sentence;
    Check check;
  };
  std::string sentences_of(std::size_t setting) const;

  std::vector<Rule> rules_;
  std::vector<Coded> coded_;
  std::vector<std::string> texts_;
};

/// The rules that `validate` checks.
const Rules& rules();

/// The rules of the settings that are given, a line each; empty where none has rules.
std::string describe_rules(const Settings& settings);

/// "train.steps (400, r.toml:3)": what a message needs to be acted on.
std::string named(const Settings& settings, std::string_view key);
/// Whether a recipe or the command line gives `key`.
bool is_given(const Settings& settings, std::string_view key);

/// A setting that was just registered, for what else there is to say of it. Valid until the next is
/// registered.
class Registered {
 public:
  /// `rules` take what is declared of it; null: nobody does.
  Registered(Setting& setting, std::size_t index, Rules* rules)
      : setting_(&setting), index_(index), rules_(rules) {}

  Registered& fixed();
  Registered& with_scope(Scope scope);

  /// The rules that follow are about these values alone, until the next `when`.
  Registered& when(Values values);
  /// Refuses it, whatever its value, where `key` has none of `values`.
  Registered& only_with(const char* key, Values values, const char* why = "");
  /// Refuses values other than the default where `key` has none of `values`.
  Registered& needs(const char* key, Values values, const char* why = "");
  /// Refuses values other than the default where `key` has another value than its default, too.
  Registered& not_beside(const char* key, const char* why = "");
  /// The same for some values of `key`.
  Registered& not_beside(const char* key, Values values, const char* why);
  Registered& not_beside(const char* key, std::initializer_list<const char*>) = delete;
  /// Refuses it, whatever its value, where `key` has another value than its default.
  Registered& settled_by(const char* key, const char* why);
  Registered& settled_by(const char* key, Values values, const char* why);
  /// A rule that needs code; `sentence` says it for people, empty where the meaning does.
  Registered& checked(const char* sentence, Check check);

 private:
  Registered& add(Rule::Kind kind, const char* key, Values values, const char* why);

  Setting* setting_;
  std::size_t index_;
  Rules* rules_;
  Values values_;
};

/// Registers settings with their rules.
class SettingRegistry {
 public:
  /// Adds what is declared to `declared`.
  SettingRegistry(Settings& settings, Rules& declared)
      : settings_(settings), declared_(&declared) {}
  /// Says of each setting what was declared before.
  SettingRegistry(Settings& settings, const Rules* known) : settings_(settings), known_(known) {}

  void group(std::string name, std::string doc, Scope scope = Scope::kRun) {
    settings_.group(std::move(name), std::move(doc), scope);
  }
  /// As Settings::add.
  template <typename Target, typename... Allowed>
  Registered add(const char* key, Target* target, std::string doc, Allowed... allowed) {
    const std::size_t index = settings_.all().size();
    if (known_ != nullptr && !known_->text_of(index).empty()) doc += " " + known_->text_of(index);
    Setting& setting = settings_.add(key, target, std::move(doc), std::move(allowed)...);
    return Registered(setting, index, declared_);
  }
  void known_elsewhere_as(const char* key, std::initializer_list<const char*> names) {
    settings_.known_elsewhere_as(key, names);
  }
  /// For what registers settings without rules.
  Settings& settings() { return settings_; }
  /// Null where nothing is to be declared.
  Rules* declared() { return declared_; }

 private:
  Settings& settings_;
  Rules* declared_ = nullptr;
  const Rules* known_ = nullptr;
};

}  // namespace atl::train
