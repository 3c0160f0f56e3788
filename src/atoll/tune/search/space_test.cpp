#include "atoll/tune/search/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "atoll/base/error.h"
#include "atoll/tune/search/grid.h"

namespace atl::tune {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Space parse(const std::string& text) {
  return parse_space(parse_toml(text, "s.toml"), "s.toml");
}

std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

TEST(Space, ReadsEveryKindOfDimension) {
  const Space space = parse(R"([space]
optim.lr = {low = 1e-4, high = 1e-2, scale = "log"}
train.batch_size = {choices = [8, 2, 4]}
model.hidden_size = {low = 64, high = 256, step = 64}
optim.kind = ["adamw", "lion"]
model.tie_word_embeddings = {}
optim.beta2 = {low = 0.9, high = 0.999, when = {optim.kind = "adamw"}}
)");
  ASSERT_EQ(space.size(), 6u);
  EXPECT_NEAR(std::get<double>(space[0].value(0.5)), 1e-3, 1e-8);
  EXPECT_EQ(space[1].value(0.0), SettingValue(std::int64_t{2}));
  EXPECT_EQ(space[1].value(0.99), SettingValue(std::int64_t{8}));
  EXPECT_EQ(space[2].num_values(), 4u);
  EXPECT_EQ(space[2].value(0.6), SettingValue(std::int64_t{192}));
  EXPECT_EQ(space[4].num_values(), 2u);
  Units units(6, 0.1);
  EXPECT_EQ(space.values(units).size(), 6u);
  units[3] = 0.9;  // lion
  EXPECT_EQ(space.values(units).size(), 5u);
  EXPECT_EQ(space.canonical(units)[5], 0.5);
}

TEST(Space, WritesItselfAsItIsRead) {
  const std::string text = R"([space]
optim.lr = {low = 0.0001, high = 0.01, scale = "log"}
train.batch_size = {choices = [2, 4, 8]}
optim.kind = {choices = ["adamw", "lion", "muon"]}
model.tie_word_embeddings = {}
optim.beta2 = {low = 0.9, high = 0.999, when = {optim.kind = ["adamw", "muon"]}}
)";
  EXPECT_EQ(parse(text).to_toml(), text);
}

TEST(Space, EachIntegerHasItsShareAndComesBack) {
  for (const bool log : {false, true}) {
    const Dimension d = {
        .key = "k", .kind = Dimension::Kind::kInteger, .low = 1, .high = 9, .log = log, .step = 2};
    std::set<std::int64_t> seen;
    for (int i = 0; i <= 1000; ++i) {
      const double unit = i / 1000.0;
      const auto value = std::get<std::int64_t>(d.value(unit));
      EXPECT_EQ(d.value(d.snap(unit)), SettingValue(value));
      EXPECT_EQ(d.value(d.unit_of(static_cast<double>(value))), SettingValue(value));
      seen.insert(value);
    }
    EXPECT_EQ(seen, (std::set<std::int64_t>{1, 3, 5, 7, 9}));
  }
}

TEST(Space, RefusesWhatCannotBeSearched) {
  EXPECT_THAT(refusal("[study]\n"), HasSubstr("s.toml: the space is empty"));
  EXPECT_THAT(refusal("[space]\noptim.lrr = {low = 1, high = 2}\n"),
              HasSubstr("s.toml:2: space.optim.lrr: a recipe has no key optim.lrr; did you mean "
                        "optim.lr?"));
  EXPECT_THAT(refusal("[space]\nlearning_rate = {low = 1, high = 2}\n"),
              HasSubstr("did you mean optim.lr?"));
  EXPECT_THAT(refusal("[space]\noptim.lr = {low = 0.1, high = 0.01}\n"),
              HasSubstr("low is 0.1 and high is 0.01; low must be below high"));
  EXPECT_THAT(refusal("[space]\noptim.lr = {low = 0.1, hgih = 0.2}\n"),
              HasSubstr("space.optim.lr has no hgih; did you mean high?"));
  EXPECT_THAT(refusal("[space]\noptim.lr = {low = 0.1}\n"), HasSubstr("has no high"));
  EXPECT_THAT(refusal("[space]\ntrain.dropout = {low = 0, high = 0.5, scale = \"log\"}\n"),
              HasSubstr("low must be above 0"));
  EXPECT_THAT(refusal("[space]\ntrain.dropout = {low = 0.0, high = 2.0}\n"),
              HasSubstr("train.dropout may not be 2"));
  EXPECT_THAT(refusal("[space]\noptim.kind = [\"adamv\"]\n"), HasSubstr("did you mean adamw?"));
  EXPECT_THAT(refusal("[space]\noptim.kind = [\"adamw\", \"adamw\"]\n"), HasSubstr("stands twice"));
  EXPECT_THAT(refusal("[space]\noptim.kind = []\n"), HasSubstr("choices is empty"));
  EXPECT_THAT(refusal("[space]\ntrain.batch_size = {low = 1.5, high = 4}\n"),
              HasSubstr("1.5 is no integer"));
  EXPECT_THAT(refusal("[space]\ndata.text = [\"a\"]\n"), HasSubstr("lists cannot be searched"));
  EXPECT_THAT(refusal("[space]\noptim.kind = [\"adamw\"]\noptim.beta2 = {low = 0.9, high = "
                      "0.99, when = {optim.kind = \"lion\"}}\n"),
              HasSubstr("`when` wants optim.kind = \"lion\", which the space never has"));
}

TEST(Grid, HasEachPointOnce) {
  const Space space = parse(R"([space]
optim.kind = ["adamw", "lion"]
train.batch_size = [2, 4, 8]
train.micro_batch = {choices = [1, 2], when = {optim.kind = "adamw"}}
)");
  Grid grid;
  EXPECT_EQ(grid.num_trials(space), 3 * 2 + 3);
  std::set<Units> seen;
  for (int i = 0; i < 9; ++i) {
    seen.insert(grid.suggest({.space = space, .number = i}).units);
  }
  EXPECT_EQ(seen.size(), 9u);
}

}  // namespace
}  // namespace atl::tune
