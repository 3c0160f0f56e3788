// What goes together with compression: what no rule refuses trains.

#include <gmock/gmock.h>

#include "atoll/train/config/compress.h"
#include "atoll/train/config/rules.h"
#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CompressedTable : public RanksFixture {};

// Which rule refuses these settings; null: they may train.
const Rule* refusing(const Settings& settings) {
  for (const Rule& rule : rules().all()) {
    if (!refusal(rule, settings).empty()) return &rule;
  }
  return nullptr;
}

TEST_F(CompressedTable, WhatNoRuleRefusesTrains) {
  const std::vector<std::pair<const char*, const char*>> modes = {
      {"dp.compress", "int8"},         {"dp.compress", "int4"},
      {"dp.compress", "powersgd"},     {"dp.compress", "onebit_adam"},
      {"dp.compress", "zeroone_adam"}, {"dp.compress_weights", "int4"}};
  const std::vector<std::pair<std::string, const char*>> others = {
      {"dp.zero", "0"},
      {"dp.zero", "1"},
      {"dp.zero", "2"},
      {"dp.zero", "3"},
      {"optim.kind", "muon"},
      {"optim.kind", "lion"},
      {"optim.kind", "sgd"},
      {"train.dtype", "bf16"},
      {"train.exact", "true"},
      {"dp.shard", "2"},
      {"parallel.tp", "2"},
      {"parallel.pp", "2"},
      {"parallel.cp", "2"},
      {"parallel.ep", "2"},
      {"parallel.layout", "auto"},
      {"island.coordinator", "localhost:1"},
      {"launch.replicate", "true"},
      {"offload.optimizer", "file"}};
  int trained = 0, refused = 0;
  for (const auto& [other, other_value] : others) {
    for (const auto& [key, value] : modes) {
      std::vector<std::string> overrides = {fmt::format("--{}={}", key, value),
                                            fmt::format("--{}={}", other, other_value),
                                            "--train.steps=3", "--optim.warmup_steps=1"};
      const std::string name = fmt::format("{}-{}-{}-{}", other, other_value, key, value);
      if (other == "island.coordinator") overrides.emplace_back("--island.name=a");
      if (std::string(key) == "dp.compress_weights" && other != "dp.zero") {
        overrides.emplace_back("--dp.zero=1");
      }
      if (other == "parallel.ep") {
        overrides.insert(overrides.end(), {"--model.family=mixtral", "--model.num_experts=2",
                                           "--model.num_experts_per_tok=1"});
      }
      TrainConfig config;
      Settings settings = make_settings(config);
      for (const std::string& argument : overrides) settings.override(argument);
      const Rule* rule = refusing(settings);
      if (rule == nullptr) {
        EXPECT_EQ(train_ranks(name, 2, overrides).outcome.step, 3) << name;
        ++trained;
        continue;
      }
      EXPECT_THAT(refusal(*rule, settings), AllOf(HasSubstr(key), HasSubstr(other))) << name;
      ++refused;
    }
  }
  EXPECT_EQ(trained, 29);
  EXPECT_EQ(refused, 79);
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
