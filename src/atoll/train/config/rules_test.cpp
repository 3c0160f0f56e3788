// Settings that refuse each other do so in one line that names both, with their values, and what to
// change.

#include "atoll/train/config/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "atoll/base/error.h"

namespace atl::train {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

using Assignments = std::map<std::string, std::string>;

// A run that has nothing but what it must have, and `assignments`.
struct Fixture {
  TrainConfig config;
  Settings settings = make_settings(config);

  explicit Fixture(const Assignments& assignments) {
    settings.load_toml_text("run.dir = 'runs/x'\ndata.text = ['a.txt']\n", "r.toml");
    for (const auto& [key, value] : assignments) {
      settings.override(fmt::format("--{}={}", key, value));
    }
  }
};

// As a command line gives a value.
std::string word_of(const SettingValue& value) {
  const auto* word = std::get_if<std::string>(&value);
  const std::string text = word != nullptr ? *word : to_toml(value);
  return text == "[]" ? "" : text;
}

// A value that `setting` may have and `values` do not include, or do.
std::string value_of(const Setting& setting, const Values& values, bool included) {
  if (included && !values.listed.empty()) return values.listed.front();
  const std::string usual = word_of(setting.default_value);
  const auto fits = [&](const std::string& value) {
    const bool is_listed =
        std::find(values.listed.begin(), values.listed.end(), value) != values.listed.end();
    return (values.listed.empty() ? value != usual : is_listed) == included;
  };
  std::vector<std::string> tried = {usual};
  tried.insert(tried.end(), setting.choices.names.begin(), setting.choices.names.end());
  for (const char* other : {"true", "false", "2", "3", "1", "0.5", "localhost:1", "int8"}) {
    tried.emplace_back(other);
  }
  for (const std::string& value : tried) {
    if (!fits(value)) continue;
    try {
      const Fixture f(Assignments{{setting.key, value}});
      return value;
    } catch (const Error&) {
      continue;  // of another type
    }
  }
  ADD_FAILURE() << "no value of " << setting.key << (included ? "" : " not") << " listed";
  return "";
}

bool is_about_given(const Rule& rule) {
  return rule.kind == Rule::Kind::kOnlyWith || rule.kind == Rule::Kind::kSettledBy;
}

// The two settings of a rule with values that break it.
Assignments broken(const Rule& rule, const Settings& settings) {
  const Setting& own = settings.all()[rule.setting];
  const Setting& other = settings.all()[rule.other];
  const bool is_wanted = rule.kind == Rule::Kind::kOnlyWith || rule.kind == Rule::Kind::kNeeds;
  Assignments both;
  if (is_about_given(rule) && rule.values.listed.empty()) {
    both[own.key] = word_of(own.default_value);
  } else {
    both[own.key] = value_of(own, rule.values, true);
  }
  both[other.key] = value_of(other, rule.others, !is_wanted);
  return both;
}

std::string error_of(const Fixture& f) {
  try {
    validate(f.config, f.settings);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

TEST(Rules, EveryPairIsRefusedInOneLineThatNamesBothAndTheRemedy) {
  TrainConfig config;
  const Settings settings = make_settings(config);
  ASSERT_GT(rules().all().size(), 60u);
  for (const Rule& rule : rules().all()) {
    const Assignments both = broken(rule, settings);
    const Fixture f(both);
    const std::string message = refusal(rule, f.settings);
    SCOPED_TRACE(
        fmt::format("{} and {}: {}", settings.all()[rule.setting].key, rule.other_key, message));
    ASSERT_EQ(both.size(), 2u);
    for (const auto& [key, value] : both) EXPECT_THAT(message, HasSubstr(named(f.settings, key)));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    EXPECT_NE(error_of(f), "");
    const std::vector<Remedy> ways = remedies(rule, f.settings);
    ASSERT_EQ(ways.size(), 2u);
    for (const Remedy& way : ways) {
      EXPECT_THAT(message.substr(message.rfind("; ")),
                  HasSubstr(way.value.empty() ? "remove " + way.key
                                              : fmt::format("set {}={}", way.key, way.value)));
      Assignments cured = both;
      cured.erase(way.key);
      if (!way.value.empty()) cured[way.key] = way.value;
      EXPECT_EQ(refusal(rule, Fixture(cured).settings), "") << way.key << "=" << way.value;
    }
  }
}

TEST(Rules, ARefusalSaysWhatToChange) {
  EXPECT_EQ(error_of(Fixture(Assignments{{"dp.compress_rank", "8"}})),
            "dp.compress_rank (8, --dp.compress_rank) is for dp.compress powersgd, not for "
            "dp.compress (\"none\", default); remove dp.compress_rank, or set "
            "dp.compress=powersgd");
  EXPECT_EQ(error_of(Fixture(Assignments{{"sync.mode", "ps"}, {"dp.zero", "1"}})),
            "sync.mode (\"ps\", --sync.mode) does not go together with dp.zero (1, --dp.zero): the "
            "servers have the optimizer's state; set dp.zero=0, or set sync.mode=allreduce");
  EXPECT_EQ(error_of(Fixture(Assignments{{"dp.compress_weights", "int4"}, {"dp.zero", "3"}})),
            "dp.compress_weights (\"int4\", --dp.compress_weights) needs dp.zero 1 or 2, and has "
            "dp.zero (3, --dp.zero): with 0 every rank updates all values, so none are sent; with "
            "3 ranks keep no copy that a difference could be to; set dp.zero=1, or set "
            "dp.compress_weights=none");
}

TEST(Rules, TheMeaningOfASettingSaysItsRules) {
  TrainConfig config;
  const Settings settings = make_settings(config);
  EXPECT_THAT(settings.find("dp.compress_rank").doc,
              EndsWith("The rank of the factors. Only with dp.compress powersgd."));
  EXPECT_THAT(settings.find("sync.mode").doc,
              HasSubstr("ps: not with parallel.tp, parallel.pp, parallel.cp, parallel.ep, "));
}

TEST(Rules, DefaultsAreThoseOfARunThatSetsNothing) {
  TrainConfig filled;
  filled.model.parametrisation = "mup";
  filled.model.mup_base_width = 64;
  const Settings settings = make_settings(filled);
  EXPECT_THROW(rules().check(filled, settings, "model.parametrisation"), Error);
  filled.model.mup_base_head_dim = 32;
  const Settings whole = make_settings(filled);
  EXPECT_NO_THROW(rules().check(filled, whole, "model.parametrisation"));
}

TEST(Rules, APlanSaysTheRulesOfWhatIsGiven) {
  const Fixture f(Assignments{{"dp.zero", "1"}, {"dp.compress_weights", "int4"}});
  EXPECT_THAT(describe_rules(f.settings), HasSubstr("  dp.compress_weights: Needs dp.zero 1 or 2"));
  EXPECT_THAT(describe_rules(f.settings), Not(HasSubstr("dp.compress_rank")));
}

}  // namespace
}  // namespace atl::train
