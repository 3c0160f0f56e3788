#include "atoll/train/ranks/rank_times.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "atoll/base/files/file.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;

TEST(RankTimes, HasTheMeansOfWhatRanksSaid) {
  std::string name = (fs::temp_directory_path() / "atoll-times-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const fs::path dir = name;
  RankTimes times(dir);
  times.add(7, {{.step_seconds = .2, .waited_seconds = .05, .compute_seconds = .1},
                {.step_seconds = .2, .waited_seconds = .01, .compute_seconds = .15}});
  auto json = nlohmann::json::parse(read_file(dir / kRankTimesFile));
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["steps"], 1);
  EXPECT_EQ(json["step_ms"], (std::vector<double>{200, 200}));
  EXPECT_EQ(json["compute_ms"], (std::vector<double>{100, 150}));
  EXPECT_EQ(json["waited_ms"], (std::vector<double>{50, 10}));
  // A second later, with one rank less: nothing of those that were lost is in the mean.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  do {
    times.add(8, {{.step_seconds = .3, .waited_seconds = .02, .compute_seconds = .1}});
    json = nlohmann::json::parse(read_file(dir / kRankTimesFile));
  } while (json["step"] != 8 && std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(json["step_ms"], (std::vector<double>{300}));
  EXPECT_GT(json["steps"], 0);
  EXPECT_FALSE(fs::exists(dir / "ranks.json.next"));
  fs::remove_all(dir);
  times.add(9, {{}});  // a directory that is gone is no trouble
}

}  // namespace
}  // namespace atl::train
