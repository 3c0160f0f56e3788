#include "atoll/train/checkpoint/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "atoll/base/files/file.h"
#include "atoll/ckpt/testing.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SaverTest : public ::testing::Test {
 protected:
  SaverTest() {
    config_.run.dir = directory_.path().string();
    config_.checkpoint.keep = 2;
  }

  Saver::Source at(std::int64_t step) {
    position_.step = step;
    return {bench_.state, position_, carried_, base_, {}};
  }
  std::vector<std::int64_t> steps() const {
    return ckpt::checkpoint_steps(directory_ / "checkpoints");
  }

  ckpt::testing::TemporaryDirectory directory_{"saving", ckpt::testing::memory_directory_path()};
  TrainConfig config_;
  std::unique_ptr<comm::World> world_ = comm::open_self();
  Ranks ranks_{*world_, config_};
  testing::Bench bench_{{.model = testing::tiny_model("llama"), .micro_batch = 4, .context = 16}};
  Position position_ = {.corpus_hash = "00ff"};
  CarriedFiles carried_;
  std::filesystem::path base_;
};

TEST_F(SaverTest, KnowsWhichCheckpointIsTheLastAndKeepsTheNewest) {
  Saver saver(config_);
  EXPECT_EQ(saver.saved_step(), -1);
  EXPECT_TRUE(saver.last_checkpoint().empty());
  for (const std::int64_t step : {1, 2, 3}) saver.save_in_passing(ranks_, at(step), nullptr);
  EXPECT_EQ(saver.saved_step(), 3);
  EXPECT_EQ(saver.last_checkpoint(), directory_ / "checkpoints" / "step-00000003");
  EXPECT_TRUE(saver.has(3));
  EXPECT_FALSE(saver.has(2)) << "of the last alone";
  EXPECT_THAT(steps(), ElementsAre(2, 3));
  EXPECT_EQ(saver.find_newest(bench_.run.device->threads())->step, 3);
}

TEST_F(SaverTest, OneThatIsUnderWayIsInPlaceOnceAllHaveWritten) {
  config_.checkpoint.async = true;
  Saver saver(config_);
  saver.save_in_passing(ranks_, at(4), nullptr);
  EXPECT_TRUE(saver.has(4));
  EXPECT_EQ(saver.saved_step(), -1);
  saver.finish_if_written(ranks_, nullptr);
  EXPECT_THAT(steps(), IsEmpty()) << "nobody has said so";
  while (!saver.has_written()) std::this_thread::yield();
  saver.all_have_written(true);
  saver.finish_if_written(ranks_, nullptr);
  EXPECT_EQ(saver.saved_step(), 4);
  EXPECT_FALSE(saver.has_written());
  EXPECT_THAT(steps(), ElementsAre(4));
}

TEST_F(SaverTest, TheNextOneWaitsForTheOneUnderWay) {
  config_.checkpoint.async = true;
  Saver saver(config_);
  saver.save_in_passing(ranks_, at(4), nullptr);
  saver.save(ranks_, at(6), nullptr);
  EXPECT_EQ(saver.saved_step(), 6);
  EXPECT_THAT(steps(), ElementsAre(4, 6));
}

TEST_F(SaverTest, OneThatIsGivenUpLeavesNothing) {
  config_.checkpoint.async = true;
  Saver saver(config_);
  saver.save(ranks_, at(2), nullptr);
  saver.save_in_passing(ranks_, at(4), nullptr);
  saver.abandon();
  saver.all_have_written(true);
  saver.finish_if_written(ranks_, nullptr);
  EXPECT_EQ(saver.saved_step(), 2);
  EXPECT_THAT(steps(), ElementsAre(2));
}

TEST_F(SaverTest, ARunGoesOnFromOneAndPutsNewerOnesAside) {
  Saver first(config_);
  first.save(ranks_, at(2), nullptr);
  first.save(ranks_, at(4), nullptr);
  Saver saver(config_);
  saver.go_on_from(2);
  saver.set_aside_newer();
  EXPECT_EQ(saver.saved_step(), 2);
  EXPECT_EQ(saver.last_checkpoint(), directory_ / "checkpoints" / "step-00000002");
  EXPECT_THAT(steps(), ElementsAre(2));
}

}  // namespace
}  // namespace atl::train
