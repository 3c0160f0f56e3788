#include "atoll/launch/rank_main.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "atoll/base/threads/thread_pool.h"

namespace atl::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Config {
  std::int64_t steps = 10;
  std::int64_t threads = 0;
  std::int64_t seed = 1;
  std::string dtype = "f32";
  std::string bf16 = "f32";
  std::string attention = "own";
};

Settings settings_of(Config& config) {
  Settings settings;
  settings.group("train", "");
  settings.add("train.steps", &config.steps, "");
  settings.add("train.dtype", &config.dtype, "");
  settings.group("device", "", Scope::kHost);
  settings.add("device.threads", &config.threads, "");
  settings.add("device.bf16", &config.bf16, "");
  settings.add("device.attention", &config.attention, "");
  settings.group("run", "");
  settings.add("run.seed", &config.seed, "");
  return settings;
}

// What three ranks with these values come to, and how many of them tell.
std::string disagreement(const std::function<void(int, Config&, std::string&)>& change,
                         int* num_reports = nullptr) {
  std::atomic<int> reports{0};
  std::string what = "(all agree)";
  try {
    comm::run_threads(3, {.timeout_s = 60}, [&](comm::World& world) {
      Config config;
      std::string version = "1.0";
      change(world.rank(), config, version);
      const Settings settings = settings_of(config);
      try {
        agree_on_settings(world, version, settings);
      } catch (const Error&) {
        reports += world.reports() ? 1 : 0;
        throw;
      }
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    what = error.what();
  }
  if (num_reports != nullptr) *num_reports = reports;
  return what;
}

TEST(AgreeOnSettings, TheSameArePassed) {
  EXPECT_EQ(disagreement([](int, Config&, std::string&) {}), "(all agree)");
}

TEST(AgreeOnSettings, ADifferentValueIsNamedOnOneRank) {
  int reports = 0;
  const std::string what = disagreement(
      [](int rank, Config& config, std::string&) { config.steps += rank >= 1 ? rank : 0; },
      &reports);
  EXPECT_THAT(what, AllOf(HasSubstr("rank 1 has `train.steps = 11`"),
                          HasSubstr("rank 0 has `train.steps = 10`")));
  EXPECT_EQ(reports, 1);
}

TEST(AgreeOnSettings, ADifferentVersionIsNamed) {
  EXPECT_THAT(disagreement([](int rank, Config&, std::string& version) {
                if (rank == 2) version = "2.0";
              }),
              AllOf(HasSubstr("rank 2 has `the version = 2.0`"), HasSubstr("1.0")));
}

TEST(AgreeOnSettings, WhatBelongsToAHostMayDiffer) {
  EXPECT_EQ(disagreement([](int rank, Config& config, std::string&) { config.threads = rank; }),
            "(all agree)");
}

TEST(AgreeOnSettings, HostsMultiplyBf16AlikeWhereTheRunHasAny) {
  const auto differ = [](const char* dtype) {
    return disagreement([dtype](int rank, Config& config, std::string&) {
      config.dtype = dtype;
      config.bf16 = rank == 2 ? "library" : "f32";
    });
  };
  EXPECT_EQ(differ("f32"), "(all agree)");
  EXPECT_THAT(differ("bf16"), AllOf(HasSubstr("rank 2"), HasSubstr("`device.bf16 = \"library\"`"),
                                    HasSubstr("`device.bf16 = \"f32\"`")));
}

TEST(AgreeOnSettings, GpusAttendAlikeInBf16) {
  EXPECT_THAT(disagreement([](int rank, Config& config, std::string&) {
                config.dtype = "bf16";
                config.attention = rank == 1 ? "cudnn" : "own";
              }),
              AllOf(HasSubstr("rank 1"), HasSubstr("`device.attention = \"cudnn\"`")));
}

TEST(FairThreads, RanksOfOneHostShareItsCpus) {
  for (const int ranks : {1, 2, 3}) {
    comm::run_threads(ranks, {.timeout_s = 60}, [ranks](comm::World& world) {
      EXPECT_EQ(fair_threads(world), std::max(1, available_cpus() / ranks));
    });
  }
}

}  // namespace
}  // namespace atl::launch
