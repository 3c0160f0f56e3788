// Whole runs with their state in a file: what a disk that is too small, or fails, leaves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>

#include "atoll/ckpt/checkpoint.h"
#include "atoll/train/trainer_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class OffloadRun : public TrainerTest {
 protected:
  // A run of so many steps in the directory "run".
  TrainOutcome train_in_file(int steps) {
    return train("run", {"--offload.optimizer=file", "--offload.params=file",
                         "--offload.piece_mib=0.03125", "--offload.dir=" + (root_ / "f").string(),
                         fmt::format("--train.steps={}", steps), "--eval.every=2"});
  }
  fs::path checkpoints() const { return root_ / "run" / "checkpoints"; }
};

TEST_F(OffloadRun, GoesOnFromItsCheckpointWithTheBitsOfMemory) {
  train_in_file(4);
  const TrainOutcome in_file = train_in_file(8);
  EXPECT_TRUE(fs::is_empty(root_ / "f"));
  train("memory", {"--train.steps=4", "--eval.every=2"});
  const TrainOutcome in_memory = train("memory", {"--train.steps=8", "--eval.every=2"});
  EXPECT_TRUE(tensors(in_file.checkpoint) == tensors(in_memory.checkpoint));
  EXPECT_EQ(in_file.held_out->loss, in_memory.held_out->loss);
}

TEST_F(OffloadRun, ADiskWithoutRoomIsToldAndLeavesTheLastCheckpoint) {
  const fs::path saved = train_in_file(4).checkpoint;
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 200 << 10;  // the text and tokens of the run are smaller, its state is not
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string error = error_of([&] { train_in_file(8); }, ErrorKind::kIo);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(error, AllOf(HasSubstr("does not fit into " + (root_ / "f").string()),
                           HasSubstr("choose a directory on another disk")));
  EXPECT_EQ(ckpt::newest_verified(checkpoints(), nullptr)->path, saved);
  EXPECT_EQ(train_in_file(8).step, 8);
}

TEST_F(OffloadRun, AWriteThatFailsEndsTheRunAndLeavesTheLastCheckpoint) {
  const fs::path saved = train_in_file(4).checkpoint;
  io_fault::arm(io_fault::Call::kWrite, 30, EIO, (root_ / "f").string());
  EXPECT_THAT(error_of([&] { train_in_file(8); }, ErrorKind::kIo),
              AllOf(HasSubstr("of the scratch file in " + (root_ / "f").string()),
                    HasSubstr("Input/output error")));
  EXPECT_EQ(ckpt::newest_verified(checkpoints(), nullptr)->path, saved);
  EXPECT_EQ(train_in_file(8).step, 8);
}

}  // namespace
}  // namespace atl::train
