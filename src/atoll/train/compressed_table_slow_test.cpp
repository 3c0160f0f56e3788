// The table of what goes together with compression: each line holds what it says.

#include <gmock/gmock.h>

#include "atoll/train/config_compress.h"
#include "atoll/train/ranks_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CompressedTable : public RanksFixture {};

TEST_F(CompressedTable, EveryLineIsTrue) {
  const std::vector<std::pair<const char*, const char*>> modes = {
      {"dp.compress", "int8"},         {"dp.compress", "int4"},
      {"dp.compress", "powersgd"},     {"dp.compress", "onebit_adam"},
      {"dp.compress", "zeroone_adam"}, {"dp.compress_weights", "int4"}};
  int trained = 0, refused = 0;
  for (const CompressRule& rule : compress_rules()) {
    for (int mode = 0; mode < kNumCompressModes; ++mode) {
      const auto& [key, value] = modes[static_cast<std::size_t>(mode)];
      std::vector<std::string> overrides = {fmt::format("--{}={}", key, value),
                                            fmt::format("--{}={}", rule.setting, rule.value),
                                            "--train.steps=3", "--optim.warmup_steps=1"};
      const std::string name = fmt::format("{}-{}-{}", rule.setting, rule.value, mode);
      if (std::string(rule.setting) == "island.coordinator") {
        overrides.emplace_back("--island.name=a");
      }
      if (mode == static_cast<int>(CompressMode::kWeights) &&
          std::string(rule.setting) != "dp.zero") {
        overrides.emplace_back("--dp.zero=1");
      }
      if (std::string(rule.setting) == "parallel.ep") {
        overrides.insert(overrides.end(), {"--model.family=mixtral", "--model.num_experts=2",
                                           "--model.num_experts_per_tok=1"});
      }
      if (rule.reasons[mode] == nullptr && std::string(rule.setting) == "lora.rank") {
        continue;  // needs a model to adapt: AdaptersTrainToo
      }
      if (rule.reasons[mode] == nullptr) {
        EXPECT_EQ(train_ranks(name, 2, overrides).outcome.step, 3) << name;
        ++trained;
        continue;
      }
      TrainConfig config;
      Settings settings = make_settings(config);
      const std::string message =
          error_of([&] { configure_ranks(config, settings, name, overrides); }, ErrorKind::kUser);
      EXPECT_THAT(message,
                  AllOf(HasSubstr(key), HasSubstr(rule.setting), HasSubstr(rule.reasons[mode])))
          << name;
      ++refused;
    }
  }
  EXPECT_GT(trained, 20);
  EXPECT_GT(refused, 50);
}

TEST_F(CompressedTable, AdaptersTrainToo) {
  const fs::path base = train("base", {"--train.steps=3"}).checkpoint;
  inline_model_ = false;
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, const char*>>{{"compress", "int8"},
                                                        {"compress", "powersgd"},
                                                        {"compress", "onebit_adam"},
                                                        {"compress", "zeroone_adam"},
                                                        {"compress_weights", "int4"}}) {
    const std::vector<std::string> overrides = {"--model.from=" + base.string(), "--lora.rank=4",
                                                fmt::format("--dp.{}={}", key, value),
                                                "--train.steps=4", "--dp.compress_warmup=0.5"};
    std::vector<std::string> first = overrides;
    if (!std::string(value).ends_with("_adam")) first.pop_back();
    if (std::string(key) == "compress_weights") first.emplace_back("--dp.zero=1");
    const std::string name = fmt::format("{}-{}", key, value);
    const Ended whole = train_ranks(name, 2, first);
    EXPECT_EQ(whole.outcome.step, 4) << name;
    // And go on from there.
    first.emplace_back("--train.steps=6");
    EXPECT_EQ(train_ranks(name, 2, first).outcome.step, 6) << name;
  }
}

TEST_F(CompressedTable, OneRankHasNobodyToSendTo) {
  EXPECT_THAT(
      error_of([&] { train("alone", {"--dp.compress=int8"}); }, ErrorKind::kUser),
      HasSubstr("dp.compress = int8 shortens what ranks send each other, and there is one"));
}

TEST_F(CompressedTable, CompanionsNeedTheirMode) {
  for (const auto& [key, value] :
       {std::pair("compress_rank", "2"), std::pair("compress_warmup", "0.5"),
        std::pair("compress_local_steps", "4"), std::pair("compress_feedback", "false")}) {
    TrainConfig config;
    Settings settings = make_settings(config);
    EXPECT_THAT(error_of(
                    [&] {
                      configure_ranks(config, settings, "alone",
                                      {fmt::format("--dp.{}={}", key, value)});
                    },
                    ErrorKind::kUser),
                AllOf(HasSubstr(key), HasSubstr("is for dp.compress")));
  }
}

}  // namespace
}  // namespace atl::train
