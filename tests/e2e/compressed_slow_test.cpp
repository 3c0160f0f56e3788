// Compressed data parallel by the program: the same bits over every backend, resumed, and told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranks_fixture.h"

namespace atl {
namespace {

using e2e::error_line;
using e2e::Finished;
using e2e::Ranks;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::vector<std::vector<std::string>> kWays = {
    {"--dp.compress=int8", "--dp.zero=1"},
    {"--dp.compress=int4", "--dp.compress_weights=int4", "--dp.zero=2"},
    {"--dp.compress=powersgd"},
    {"--dp.compress=onebit_adam", "--dp.zero=1"},
    {"--dp.compress=zeroone_adam"}};

std::vector<std::string> with(std::vector<std::string> some, std::vector<std::string> more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

TEST_F(Ranks, CompressedRunsHaveTheSameBitsOverEveryBackend) {
  std::vector<std::string> backends = {"gloo", "tcp"};
  if (e2e::has_mpirun()) backends.emplace_back("mpi");
  for (std::size_t way = 0; way < kWays.size(); ++way) {
    const std::string name = fmt::format("threads-{}", way);
    const Finished threads = run_ranks(name, with({"-n", "2"}, kWays[way]));
    ASSERT_EQ(threads.exit_code, 0) << threads.err;
    EXPECT_THAT(threads.out, ContainsRegex("step 40/40 .* sent [0-9.]+ MB"));
    for (const std::string& backend : backends) {
      const std::string other = fmt::format("{}-{}", backend, way);
      const Finished run = run_ranks(other, with({"-n", "2", "--backend=" + backend}, kWays[way]));
      ASSERT_EQ(run.exit_code, 0) << run.err;
      EXPECT_EQ(weights(other), weights(name)) << backend << ", way " << way;
    }
  }
}

TEST_F(Ranks, ACompressedRunGoesOnWithOtherRanksAndIsRefusedByAnotherCodec) {
  const std::vector<std::string> int4 = kWays[1];
  const auto begun = [&](const char* ranks, const char* steps) {
    return run_ranks("run", with({"-n", ranks, steps, "--train.micro_batch=1"}, int4));
  };
  ASSERT_EQ(begun("4", "--train.steps=10").exit_code, 0);
  const Finished two = begun("2", "--train.steps=20");
  ASSERT_EQ(two.exit_code, 0) << two.err;
  const Finished one = run_ranks("run", with({"-n", "1", "--train.micro_batch=1"}, int4));
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_THAT(error_line(one), HasSubstr("there is one rank"));
  const Finished plain = run_ranks("run", {"-n", "2", "--train.micro_batch=1"});
  EXPECT_EQ(plain.exit_code, 2);
  // Settings that changed are told before it.
  EXPECT_THAT(plain.err,
              AllOf(HasSubstr("error: "),
                    HasSubstr("step-00000020: 2 ranks have residuals of dp.compress = int4"),
                    HasSubstr("--dp.compress_owed=fold")));
  const Finished folded =
      run_ranks("run", {"-n", "2", "--train.micro_batch=1", "--dp.compress_owed=fold"});
  EXPECT_EQ(folded.exit_code, 0) << folded.err;
  EXPECT_FALSE(weights("run").contains("owed.0.model.norm.weight"));
}

}  // namespace
}  // namespace atl
