#include "atoll/train/config/rules.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/nn/models/family.h"
#include "atoll/optim/options.h"
#include "atoll/optim/registry.h"
#include "atoll/train/config/groups.h"

namespace atl::train {

namespace {

// As a command line gives it: words without quotes.
std::string plain(const SettingValue& value) {
  const auto* word = std::get_if<std::string>(&value);
  return word != nullptr ? *word : to_toml(value);
}

std::string named(const Setting& setting) {
  return fmt::format("{} ({}, {})", setting.key, setting.toml(), setting.origin);
}

// Whether the rule is about whatever a user gives, even the default.
bool is_about_given(const Rule& rule) {
  return rule.kind == Rule::Kind::kOnlyWith || rule.kind == Rule::Kind::kSettledBy;
}

// Whether `others` are what the other setting must have; else what it must not have.
bool are_wanted(const Rule& rule) {
  return rule.kind == Rule::Kind::kOnlyWith || rule.kind == Rule::Kind::kNeeds;
}

bool is_kept(const Rule& rule, const Settings& settings) {
  const Setting& setting = settings.all()[rule.setting];
  const bool any = is_about_given(rule) && rule.values.listed.empty();
  if (any ? setting.is_default() : !rule.values.include(setting.value(), rule.usual)) return true;
  return rule.others.include(settings.all()[rule.other].value(), rule.other_usual) ==
         are_wanted(rule);
}

// How a setting becomes what it is without being given.
Remedy undone(const Setting& setting, const SettingValue& usual, bool any_value) {
  const bool has_nothing = usual == SettingValue(std::string()) || to_toml(usual) == "[]";
  return {setting.key, any_value || has_nothing ? "" : plain(usual)};
}

std::string text_of(const Remedy& remedy) {
  if (remedy.value.empty()) return "remove " + remedy.key;
  return fmt::format("set {}={}", remedy.key, remedy.value);
}

// "1, 2 or 3".
std::string text_of(const Values& values) {
  return optim::enumerated(values.listed, "or");
}

// "dp.zero 1, 2 or 3"; the key alone for all values but the default.
std::string others_of(const Rule& rule) {
  return rule.other_key + (rule.others.listed.empty() ? "" : " ") + text_of(rule.others);
}

bool are_said_together(const Rule& a, const Rule& b) {
  return a.kind == b.kind && a.values.listed == b.values.listed && a.why == b.why;
}

// "Not with parallel.tp or parallel.pp: that is not built." `rules` differ in the other setting
// alone.
std::string sentence(const std::vector<Rule>& rules) {
  const Rule& first = rules.front();
  std::vector<std::string> others;
  for (const Rule& rule : rules) others.push_back(others_of(rule));
  const char* begins[] = {"only with ", "needs ", "not with ", "not with "};
  std::string text = begins[static_cast<std::size_t>(first.kind)];
  if (first.values.listed.empty()) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  } else {
    text = text_of(first.values) + ": " + text;
  }
  text += optim::enumerated(others, are_wanted(first) ? "and" : "or");
  if (!first.why.empty()) return text + ": " + first.why + ".";
  return text + (first.kind == Rule::Kind::kNotBeside ? " yet." : ".");
}

}  // namespace

Values changed(const char* example) {
  Values values;
  values.example = example;
  return values;
}

bool Values::include(const SettingValue& value, const SettingValue& usual) const {
  return listed.empty() ? value != usual : lists(value);
}

bool Values::lists(const SettingValue& value) const {
  return std::find(listed.begin(), listed.end(), plain(value)) != listed.end();
}

std::vector<Remedy> remedies(const Rule& rule, const Settings& settings) {
  const Setting& other = settings.all()[rule.other];
  const Remedy own = undone(settings.all()[rule.setting], rule.usual, is_about_given(rule));
  const Remedy others = are_wanted(rule) ? Remedy{other.key, rule.others.example}
                                         : undone(other, rule.other_usual, false);
  if (is_about_given(rule)) return {own, others};
  return {others, own};
}

std::string refusal(const Rule& rule, const Settings& settings) {
  if (is_kept(rule, settings)) return "";
  const std::string own = named(settings.all()[rule.setting]);
  const std::string other = named(settings.all()[rule.other]);
  const std::string wanted = others_of(rule);
  const std::string why = rule.why.empty() ? "" : ": " + rule.why;
  std::string text;
  switch (rule.kind) {
    case Rule::Kind::kOnlyWith:
      text = rule.others.listed.empty()
                 ? fmt::format("{} does nothing with {}{}", own, other, why)
                 : fmt::format("{} is for {}, not for {}{}", own, wanted, other, why);
      break;
    case Rule::Kind::kNeeds:
      text = fmt::format("{} needs {}, and has {}{}", own, wanted, other, why);
      break;
    case Rule::Kind::kNotBeside:
      text =
          fmt::format("{} does not go together with {}{}", own, other, why.empty() ? " yet" : why);
      break;
    case Rule::Kind::kSettledBy:
      text = fmt::format("{} and {} are both given, and {}", other, own, rule.why);
      break;
  }
  std::vector<std::string> ways;
  for (const Remedy& remedy : remedies(rule, settings)) ways.push_back(text_of(remedy));
  return fmt::format("{}; {}", text, fmt::join(ways, ", or "));
}

void Rules::add(std::size_t setting, std::string sentence, Check check) {
  coded_.push_back({setting, std::move(sentence), check});
}

void Rules::resolve(const Settings& settings) {
  for (Rule& rule : rules_) {
    while (rule.other < settings.all().size() && settings.all()[rule.other].key != rule.other_key) {
      ++rule.other;
    }
    ATOLL_CHECK(rule.other < settings.all().size(), "a rule of {} names {}, which is no setting",
                settings.all()[rule.setting].key, rule.other_key);
    rule.usual = settings.all()[rule.setting].default_value;
    rule.other_usual = settings.all()[rule.other].default_value;
    ATOLL_CHECK(are_wanted(rule) || !rule.others.lists(rule.other_usual),
                "a rule of {} refuses the default of {}", settings.all()[rule.setting].key,
                rule.other_key);
  }
  for (std::size_t i = 0; i < settings.all().size(); ++i) texts_.push_back(sentences_of(i));
}

void Rules::check(const TrainConfig& config, const Settings& settings,
                  std::string_view prefix) const {
  for (const Rule& rule : rules_) {
    if (!settings.all()[rule.setting].key.starts_with(prefix)) continue;
    if (const std::string text = refusal(rule, settings); !text.empty()) {
      throw Error(ErrorKind::kUser, text);
    }
  }
  for (const Coded& coded : coded_) {
    if (settings.all()[coded.setting].key.starts_with(prefix)) coded.check(config, settings);
  }
}

std::string Rules::sentences_of(std::size_t setting) const {
  std::vector<std::vector<Rule>> together;
  for (const Rule& rule : rules_) {
    if (rule.setting != setting) continue;
    const auto same = std::find_if(together.begin(), together.end(), [&](const auto& some) {
      return are_said_together(some.front(), rule);
    });
    if (same == together.end()) {
      together.push_back({rule});
    } else {
      same->push_back(rule);
    }
  }
  std::vector<std::string> sentences;
  for (const std::vector<Rule>& some : together) sentences.push_back(sentence(some));
  for (const Coded& coded : coded_) {
    if (coded.setting != setting || coded.sentence.empty()) continue;
    sentences.push_back(coded.sentence);
  }
  return fmt::format("{}", fmt::join(sentences, " "));
}

const Rules& rules() {
  // Optimizers that were added bring settings, and families values, so each set of both has rules
  // of its own.
  std::vector<std::string> registered;
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds()) {
    registered.emplace_back(kind.name);
  }
  for (const nn::Family& family : nn::families()) registered.emplace_back(family.model_type);
  static std::mutex mutex;
  static std::map<std::vector<std::string>, Rules> all;
  const std::lock_guard lock(mutex);
  const auto [made, is_new] = all.try_emplace(registered);
  if (is_new) {
    TrainConfig config;
    Settings settings;
    SettingRegistry registry(settings, made->second);
    add_all(registry, config);
    made->second.resolve(settings);
  }
  return made->second;
}

std::string describe_rules(const Settings& settings) {
  std::string text;
  for (std::size_t i = 0; i < settings.all().size(); ++i) {
    const std::string& own = rules().text_of(i);
    if (settings.all()[i].is_default() || own.empty()) continue;
    text += fmt::format("  {}: {}\n", settings.all()[i].key, own);
  }
  return text;
}

std::string named(const Settings& settings, std::string_view key) {
  return named(settings.find(key));
}

bool is_given(const Settings& settings, std::string_view key) {
  return !settings.find(key).is_default();
}

Registered& Registered::fixed() {
  setting_->fixed();
  return *this;
}

Registered& Registered::with_scope(Scope scope) {
  setting_->with_scope(scope);
  return *this;
}

Registered& Registered::when(Values values) {
  values_ = std::move(values);
  return *this;
}

Registered& Registered::only_with(const char* key, Values values, const char* why) {
  return add(Rule::Kind::kOnlyWith, key, std::move(values), why);
}

Registered& Registered::needs(const char* key, Values values, const char* why) {
  return add(Rule::Kind::kNeeds, key, std::move(values), why);
}

Registered& Registered::not_beside(const char* key, const char* why) {
  return add(Rule::Kind::kNotBeside, key, {}, why);
}

Registered& Registered::not_beside(const char* key, Values values, const char* why) {
  return add(Rule::Kind::kNotBeside, key, std::move(values), why);
}

Registered& Registered::settled_by(const char* key, const char* why) {
  return add(Rule::Kind::kSettledBy, key, {}, why);
}

Registered& Registered::settled_by(const char* key, Values values, const char* why) {
  return add(Rule::Kind::kSettledBy, key, std::move(values), why);
}

Registered& Registered::checked(const char* sentence, Check check) {
  if (rules_ != nullptr) rules_->add(index_, sentence, check);
  return *this;
}

Registered& Registered::add(Rule::Kind kind, const char* key, Values values, const char* why) {
  if (rules_ == nullptr) return *this;
  rules_->add({.kind = kind,
               .setting = index_,
               .values = values_,
               .other_key = key,
               .others = std::move(values),
               .why = why});
  return *this;
}

}  // namespace atl::train
