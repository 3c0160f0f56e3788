// What goes wrong on one rank while a run is prepared ends all ranks with the same message.

#include <cerrno>
#include <mutex>
#include <set>

#include "atoll/train/trainer_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class TrainerAgreement : public TrainerTest {
 protected:
  static constexpr int kRanks = 3;

  // Trains; rank 1 has `other` settings beside. What each rank that failed said.
  std::vector<std::string> train_ranks(const std::vector<std::string>& other = {}) {
    std::vector<std::string> all = {"--device.threads=1", "--train.steps=2", "--train.batch_size=6",
                                    "--checkpoint.keep=1"};
    all.insert(all.end(), more_.begin(), more_.end());
    TrainConfig config, odd_config;
    Settings settings = make_settings(config), odd_settings = make_settings(odd_config);
    configure(settings, "run", all);
    all.insert(all.end(), other.begin(), other.end());
    configure(odd_settings, "run", all);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Captured captured;
    std::vector<std::string> messages;
    std::mutex mutex;
    int reports = 0;
    comm::run_threads(kRanks, {.timeout_s = 60}, [&](comm::World& world) {
      const bool is_odd = world.rank() == 1;
      try {
        Trainer(is_odd ? odd_config : config, is_odd ? odd_settings : settings, world).run();
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        messages.emplace_back(error.what());
        reports += world.reports() ? 1 : 0;
      }
    });
    EXPECT_EQ(reports, messages.empty() ? 0 : 1) << "told once";
    return messages;
  }
  static void expect_all_say(const std::vector<std::string>& messages, const std::string& words) {
    EXPECT_EQ(messages.size(), static_cast<std::size_t>(kRanks));
    EXPECT_EQ(std::set<std::string>(messages.begin(), messages.end()).size(), 1U)
        << ::testing::PrintToString(messages);
    EXPECT_THAT(messages, ::testing::Each(HasSubstr(words)));
  }
  // Whether there were not so many renames; disarms it.
  static bool is_armed() {
    bool fires = false;
    for (int i = 0; i < 1000 && !fires; ++i) fires = io_fault::fires(io_fault::Call::kRename, {});
    return fires;
  }
  fs::path run() const { return root_ / "run"; }

  std::vector<std::string> more_;  // settings of all ranks
};

TEST_F(TrainerAgreement, ATextThatOneRankDoesNotSee) {
  expect_all_say(train_ranks({"--data.text=" + (root_ / "none.txt").string()}), "none.txt");
}

TEST_F(TrainerAgreement, AModelThatDoesNotFitOnOneRank) {
  expect_all_say(train_ranks({"--model.num_attention_heads=7"}), "7");
}

TEST_F(TrainerAgreement, ALayoutThatOneRankCannotHave) {
  expect_all_say(train_ranks({"--dp.shard=2", "--dp.zero=1"}), "dp.shard");
}

TEST_F(TrainerAgreement, ALogThatTheLeadCannotOpen) {
  fs::create_directories(run() / "metrics.jsonl");
  expect_all_say(train_ranks(), "metrics.jsonl");
}

TEST_F(TrainerAgreement, ACheckpointThatTheLeadCannotPutBack) {
  ASSERT_TRUE(train_ranks().empty());
  const fs::path root = run() / "checkpoints";
  // As a process left it that was killed while a new one took its name.
  fs::rename(root / "step-00000002", root / ".old-step-00000002-999999999");
  io_fault::arm(io_fault::Call::kRename, 1, ENOSPC);
  expect_all_say(train_ranks(), ".old-step-00000002");
  EXPECT_FALSE(is_armed());
}

TEST_F(TrainerAgreement, ACheckpointThatOneRankMayNotGoOnFrom) {
  ASSERT_TRUE(train_ranks().empty());
  expect_all_say(train_ranks({"--run.seed=5"}), "run.seed is 5 and was 1");
}

// Logs, a checkpoint's files, its place, and that of the one before, which goes.
TEST_F(TrainerAgreement, AnythingThatCannotBePutInPlace) {
  ASSERT_TRUE(train_ranks().empty());
  fs::rename(run(), root_ / "before");
  more_ = {"--train.steps=3"};
  int renames = 0;
  for (;; ++renames) {
    fs::remove_all(run());
    fs::copy(root_ / "before", run(), fs::copy_options::recursive);
    io_fault::arm(io_fault::Call::kRename, renames + 1, ENOSPC);
    const std::vector<std::string> messages = train_ranks();
    if (messages.empty() && is_armed()) break;
    if (messages.empty()) continue;  // a warning will do
    expect_all_say(messages, "No space left");
    ASSERT_FALSE(HasFailure()) << "rename " << renames + 1;
  }
  EXPECT_GT(renames, 2 * kRanks);
}

}  // namespace
}  // namespace atl::train
