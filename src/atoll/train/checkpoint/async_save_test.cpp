// Checkpoints that are written beside the steps that follow.

#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AsyncSaveTest : public RanksFixture {
 protected:
  fs::path checkpoints(const std::string& name) const { return root_ / name / "checkpoints"; }
};

TEST_F(AsyncSaveTest, RunsSaveWhatRunsThatWaitSave) {
  const std::vector<std::string> common = {"--checkpoint.every=3", "--checkpoint.keep=4",
                                           "--train.steps=12", "--checkpoint.async=true"};
  std::vector<std::string> waiting = common;
  waiting.back() = "--checkpoint.async=false";
  const TrainOutcome now = train("now", waiting);
  const TrainOutcome beside = train("beside", common);
  EXPECT_EQ(ckpt::checkpoint_steps(checkpoints("beside")),
            ckpt::checkpoint_steps(checkpoints("now")));
  EXPECT_EQ(ckpt::checkpoint_steps(checkpoints("beside")).size(), 4U);
  for (const std::int64_t step : ckpt::checkpoint_steps(checkpoints("beside"))) {
    EXPECT_EQ(tensors(ckpt::checkpoint_at(checkpoints("beside"), step).path),
              tensors(ckpt::checkpoint_at(checkpoints("now"), step).path))
        << step;
    ckpt::verify_checkpoint(ckpt::checkpoint_at(checkpoints("beside"), step).path);
  }
  EXPECT_EQ(beside.checkpoint.filename(), "step-00000012");
}

TEST_F(AsyncSaveTest, RanksSaveBesideTheStepsAndAnyOthersGoOn) {
  const std::vector<std::string> common = {"--train.exact=true", "--train.batch_size=8",
                                           "--optim.schedule=constant"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  const Ended whole = train_ranks("whole", 1, with({"--train.steps=12"}));
  train_ranks("run", 3,
              with({"--train.steps=5", "--dp.zero=3", "--checkpoint.async=true",
                    "--checkpoint.every=2", "--checkpoint.keep=9"}));
  EXPECT_THAT(ckpt::checkpoint_steps(checkpoints("run")), ::testing::ElementsAre(2, 4, 5));
  train_ranks("run", 4, with({"--train.steps=9", "--dp.zero=1", "--checkpoint.async=true"}));
  const Ended rest = train_ranks("run", 1, with({"--train.steps=12"}));
  EXPECT_EQ(tensors(rest.outcome.checkpoint), tensors(whole.outcome.checkpoint));
}

TEST_F(AsyncSaveTest, ASignalWaitsForTheOneUnderWay) {
  const std::vector<std::string> settings = {"--checkpoint.every=4", "--checkpoint.async=true",
                                             "--checkpoint.keep=9"};
  const TrainOutcome stopped = train("run", settings, /*stop_after=*/5);
  EXPECT_EQ(stopped.step, 5);
  EXPECT_THAT(ckpt::checkpoint_steps(checkpoints("run")), ::testing::ElementsAre(4, 5));
  EXPECT_EQ(tensors(train("run", settings).checkpoint), tensors(train("whole").checkpoint));
}

TEST_F(AsyncSaveTest, AWriteThatFailsEndsTheRunSoonAndKeepsWhatWasThere) {
  train("run", {"--train.steps=20"}, /*stop_after=*/2);
  io_fault::arm(io_fault::Call::kWrite, 3, ENOSPC, "step-00000004");
  const std::string message = error_of(
      [&] {
        train("run", {"--checkpoint.every=4", "--checkpoint.async=true", "--train.steps=20000"});
      },
      ErrorKind::kIo);
  EXPECT_THAT(message, AllOf(HasSubstr("bytes, cannot write to"), HasSubstr("step-00000004"),
                             HasSubstr("No space left on device")));
  EXPECT_LT(metrics::read_jsonl(root_ / "run" / "metrics.jsonl").back().step, 20000);
  EXPECT_THAT(ckpt::checkpoint_steps(checkpoints("run")), ::testing::ElementsAre(2));
  ckpt::verify_checkpoint(ckpt::checkpoint_at(checkpoints("run"), 2).path);
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints("run")), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace atl::train
