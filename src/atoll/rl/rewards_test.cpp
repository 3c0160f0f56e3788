#include "atoll/rl/rewards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/processes/sandbox.h"
#include "atoll/rl/advantages.h"

namespace atl::rl {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

double earned(const Reward& reward, const std::string& text, const std::string& answer = "") {
  const Prompt prompt = {
      .tokens = {}, .answer = answer, .row = R"({"prompt": "2+2=", "answer": 4})", .origin = "row"};
  return reward.of({.prompt = &prompt, .text = text, .is_whole = true});
}

TEST(AnswerReward, ComparesNumbersAsNumbers) {
  const auto reward = answer_reward("", {});
  EXPECT_EQ(earned(*reward, "so it is 18.\n#### 18", "She has 9 * 2 = 18\n#### 18"), 1);
  EXPECT_EQ(earned(*reward, "#### 1,000.00", "#### 1000"), 1);
  EXPECT_EQ(earned(*reward, "#### $1,234,567", "1234567"), 1);
  EXPECT_EQ(earned(*reward, "#### -07.50", "-7.5"), 1);
  EXPECT_EQ(earned(*reward, "#### 10,00", "1000"), 0);  // no thousands
  EXPECT_EQ(earned(*reward, "#### 18 eggs", "18"), 0);
  EXPECT_EQ(earned(*reward, " Paris\n", "Paris"), 1);
  EXPECT_EQ(earned(*reward, "paris", "Paris"), 0);
  EXPECT_EQ(earned(*reward, "", "0"), 0);
  EXPECT_EQ(earned(*reward, "-0", "0"), 1);
}

TEST(AnswerReward, FindsTheLastMatch) {
  const auto reward = answer_reward("boxed\\{([^}]*)\\}", {});
  EXPECT_EQ(earned(*reward, "boxed{3} no, boxed{4}", "4"), 1);
  EXPECT_EQ(earned(*reward, "boxed{4} no, boxed{3}", "4"), 0);
  EXPECT_EQ(earned(*reward, "4", "4"), 0);
}

TEST(RegexReward, MatchesAnywhere) {
  const auto reward = regex_reward("^<think>.*</think>\\d+$");
  EXPECT_EQ(earned(*reward, "<think>hm</think>12"), 1);
  EXPECT_EQ(earned(*reward, "<think>hm</think>twelve"), 0);
  // Neither what is not UTF-8 nor what would take for ever is a match.
  EXPECT_EQ(earned(*reward, "\xff"), 0);
  EXPECT_EQ(earned(*regex_reward("^(a+)+$"), std::string(200, 'a') + "b"), 0);
}

class RewardFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / fmt::format("atoll-rewards-{}", ::getpid());
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string file(const std::string& name, const std::string& content) const {
    write_file(root_ / name, content);
    return (root_ / name).string();
  }
  std::filesystem::path root_;
};

TEST_F(RewardFiles, SchemaAcceptsWhatItDescribes) {
  const auto reward = schema_reward(
      file("schema.json",
           R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},
          "required":["name","age"],"additionalProperties":false})"));
  EXPECT_EQ(earned(*reward, "{\"name\": \"Ada\",\n  \"age\": 36}"), 1);
  EXPECT_EQ(earned(*reward, R"({"name": "Ada"})"), 0);
  EXPECT_EQ(earned(*reward, R"({"name": "Ada", "age": "old"})"), 0);
  EXPECT_EQ(earned(*reward, R"({"name": "Ada", "age": 3)"), 0);
  EXPECT_THROW(schema_reward(file("bad.json", R"({"type": "colour"})")), Error);
}

// A program's way to answer, as a shell says it.
std::unique_ptr<Reward> shell(const std::string& script, double seconds = 20) {
  train::RlSettings settings;
  settings.program = {"sh", "-c", script};
  settings.program_s = seconds;
  return program_reward(settings);
}

TEST(ProgramReward, GivesTheNumberThatItPrints) {
  EXPECT_EQ(earned(*shell("echo 0.25"), "4"), 0.25);
  EXPECT_EQ(earned(*shell("grep -c '\"completion\":\"4\"'"), "4"), 1);
  EXPECT_EQ(earned(*shell("grep -c '\"completion\":\"4\"' || true"), "5"), 0);
}

TEST(ProgramReward, EarnsNothingWhereItFails) {
  EXPECT_EQ(earned(*shell("exit 3"), "4"), 0);
  EXPECT_EQ(earned(*shell("echo yes"), "4"), 0);
  EXPECT_EQ(earned(*shell("echo nan"), "4"), 0);
  EXPECT_EQ(earned(*shell("kill -9 $$"), "4"), 0);
  train::RlSettings settings;
  settings.program = {"no-such-program-anywhere"};
  EXPECT_THROW(earned(*program_reward(settings), "4"), Error);
}

TEST(Sandbox, EndsWhatHangsAndAllThatItStarted) {
  // The grandchildren leave the group, and would write the file when they are not ended.
  const std::string mark =
      (std::filesystem::temp_directory_path() / fmt::format("atoll-mark-{}", ::getpid())).string();
  const SandboxResult result = run_in_sandbox(
      {"sh", "-c", "for i in 1 2 3 4; do sleep 600 & done; echo begun; sleep 600; echo > " + mark},
      "", {.seconds = 1});
  EXPECT_EQ(result.end, SandboxResult::End::kTime);
  EXPECT_EQ(result.output, "begun\n");
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST(Sandbox, BoundsOutputAndFiles) {
  const SandboxResult loud = run_in_sandbox({"sh", "-c", "yes"}, "", {.seconds = 60});
  EXPECT_EQ(loud.end, SandboxResult::End::kOutput);
  EXPECT_EQ(loud.output.size(), 65536U);
  // A gigabyte into a file: its limit is 16 MiB.
  const SandboxResult large =
      run_in_sandbox({"sh", "-c",
                      "head -c 1000000000 /dev/zero > $TMPDIR/large; wc -c < "
                      "$TMPDIR/large"},
                     "", {.seconds = 60, .memory_mib = 16});
  EXPECT_EQ(large.end, SandboxResult::End::kExited);
  EXPECT_LE(std::atoll(large.output.c_str()), 16 << 20);
}

TEST(Sandbox, TakesInputThatNobodyReads) {
  const std::string much(1 << 20, 'x');
  EXPECT_EQ(run_in_sandbox({"sh", "-c", "exit 0"}, much, {}).status, 0);
  EXPECT_EQ(run_in_sandbox({"wc", "-c"}, much, {}).output, "1048576\n");
}

TEST(Sandbox, HasNoNetworkAndWritesNowhereElse) {
  if (!has_sandbox()) GTEST_SKIP() << "this system gives programs no namespaces of their own";
  const SandboxResult devices =
      run_in_sandbox({"sh", "-c", "grep -c : /proc/self/net/dev"}, "", {});
  EXPECT_EQ(devices.output, "1\n");  // the loop, which is down
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("atoll-wrote-{}", ::getpid())).string();
  run_in_sandbox({"sh", "-c", "echo > " + path}, "", {});
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Advantages, AreThoseOfTheGroup) {
  const std::vector<double> rewards = {1, 0, 0, 0, 1, 1, 1, 1};
  // torch: x = tensor([1., 0, 0, 0]); (x - x.mean()) / (x.std() + 1e-4)
  EXPECT_THAT(
      advantages(rewards, 4, Advantage::kNormalised),
      ElementsAre(DoubleNear(1.4997000599880024, 1e-12), DoubleNear(-0.49990001999600079, 1e-12),
                  DoubleNear(-0.49990001999600079, 1e-12), DoubleNear(-0.49990001999600079, 1e-12),
                  0, 0, 0, 0));
  EXPECT_THAT(advantages(rewards, 4, Advantage::kCentred),
              ElementsAre(0.75, -0.25, -0.25, -0.25, 0, 0, 0, 0));
  EXPECT_EQ(groups_without_signal(rewards, 4), 1);
  EXPECT_THAT(advantages(std::vector<double>(3, 0.1), 3, Advantage::kCentred),
              ElementsAre(0, 0, 0));
}

TEST(PromptOrder, TakesEachOncePerEpoch) {
  PromptOrder order(7, 10);
  std::vector<std::int64_t> first, second;
  for (int i = 0; i < 10; ++i) first.push_back(order.at(i));
  for (int i = 0; i < 10; ++i) second.push_back(order.at(10 + i));
  EXPECT_NE(first, second);
  EXPECT_EQ(order.at(3), first[3]);  // also backwards
  EXPECT_THAT(first, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(second, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

}  // namespace
}  // namespace atl::rl
