#include "atoll/plan/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/plan/testing.h"

namespace atl::plan {

namespace {

constexpr const char* kLeast = "[machine]\nflops_per_s = 1e12\nbytes_per_s = 1e11\n";

std::string message_of(const std::string& text) {
  try {
    parse_figures(text, "m.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

OpCase product(std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  return {.name = "mlp_up/forward",
          .bound = OpCase::Bound::kArithmetic,
          .amount = 2.0 * static_cast<double>(rows * columns * inner),
          .sizes = {rows, columns, inner},
          .prepare = {}};
}

TEST(Figures, AreReadAsTheyWereWritten) {
  Figures figures = round_figures();
  figures.machine = "a \"quoted\" name";
  figures.rates["mlp_up/forward 512x1536x256"] = 1.0 / 3 * 1e11;
  figures.rates["adamw 4000000x1"] = 9.87654321e9;
  figures.layer_factor = 1.0 / 7;
  EXPECT_EQ(parse_figures(to_toml(figures), "m.toml"), figures);
}

TEST(Figures, NeedOnlyProductsAndMemory) {
  const Figures figures = parse_figures(kLeast, "m.toml");
  EXPECT_EQ(figures.flops_per_s, 1e12);
  EXPECT_EQ(figures.ranks_per_host, 1);
  EXPECT_EQ(seconds_of(figures, product(1000, 1000, 500)), 1e-3);
}

TEST(Figures, ThatAreWrongAreRefusedWithLineAndKey) {
  const std::string least = kLeast;
  EXPECT_THAT(message_of("[machine]\nbytes_per_s = 1e11\n"),
              ::testing::HasSubstr("machine.flops_per_s is missing"));
  EXPECT_THAT(message_of(least + "overlap = 2\n"),
              ::testing::HasSubstr("m.toml:4: machine.overlap is 2"));
  EXPECT_THAT(message_of(least + "memory_gib = \"much\"\n"),
              ::testing::HasSubstr("m.toml:4: machine.memory_gib is \"much\""));
  EXPECT_THAT(message_of(least + "ranks_per_host = 1.5\n"),
              ::testing::HasSubstr("m.toml:4: machine.ranks_per_host is 1.5"));
  EXPECT_THAT(message_of(least + "memory_gb = 1\n"),
              ::testing::HasSubstr("machine.memory_gb is no figure; did you mean"));
  EXPECT_THAT(message_of(least + "[host.1]\nlatency_s = 1\n"),
              ::testing::HasSubstr("m.toml:5: host.1.latency_s is no figure"));
  EXPECT_THAT(message_of(least + "[network]\nlatency_s = -1\n"),
              ::testing::HasSubstr("m.toml:5: network.latency_s is -1"));
  EXPECT_THAT(message_of(least + "[rates]\n\"adamw 5\" = 0\n"),
              ::testing::HasSubstr("m.toml:5: rates.adamw 5 is 0"));
  EXPECT_THAT(message_of(least + "speedups = [1.5, 2]\n"),
              ::testing::HasSubstr("machine.speedups ends with 2"));
  EXPECT_THAT(message_of(least + "speedups = 3\n"),
              ::testing::HasSubstr("m.toml:4: machine.speedups is 3"));
}

TEST(Figures, GiveAnOpTheRateOfTheNearestSizes) {
  Figures figures = parse_figures(kLeast, "m.toml");
  figures.rates[rate_key(product(64, 64, 64))] = 1e9;
  figures.rates[rate_key(product(1024, 1024, 1024))] = 4e9;
  figures.rates["mlp_up/forward_of_another 64x64x64"] = 1;
  EXPECT_EQ(seconds_of(figures, product(128, 64, 64)), 2.0 * 128 * 64 * 64 / 1e9);
  EXPECT_EQ(seconds_of(figures, product(512, 1024, 1024)), 2.0 * 512 * 1024 * 1024 / 4e9);
}

TEST(Figures, GiveAGroupTheLinkOfTheNearestSize) {
  const Figures figures = round_figures();
  EXPECT_EQ(host_link(figures, 2), figures.host.at(2));
  EXPECT_EQ(host_link(figures, 8), figures.host.at(4));
}

}  // namespace

}  // namespace atl::plan
