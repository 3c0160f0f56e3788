// Ranks that save together: what one of them knows, or fails at, all know.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <mutex>
#include <thread>

#include "atoll/base/files/file.h"
#include "atoll/ckpt/testing.h"
#include "atoll/comm/mesh.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kRanks = 3;

class SaveAgreement : public ::testing::Test {
 protected:
  // Saves by three ranks, each into the root that it is told; what they threw. `before_commit` runs
  // on rank 0 once all have written their parts.
  std::vector<std::string> save(const std::function<fs::path(int rank)>& root,
                                const std::function<void()>& before_commit = {}) {
    std::vector<std::string> messages;
    std::mutex mutex;
    comm::run_threads(kRanks, {.timeout_s = 60}, [&](comm::World& world) {
      StateOptions options = {
          .model = testing::tiny_model("llama"), .micro_batch = 2, .context = 16};
      options.data_parallel = {.zero = parallel::Zero::kOptimizer,
                               .num_ranks = kRanks,
                               .rank = world.rank(),
                               .rounds = 2};
      comm::Mesh mesh(world, {{"shard", kRanks}});
      testing::Bench bench(options, 1);
      bench.state.connect(world.all(), mesh.group("shard"), nullptr);
      try {
        const auto saving =
            begin_save(root(world.rank()), bench.state, {.step = 1, .corpus_hash = "00ff"}, {}, {},
                       CheckpointSave::Mode::kBeside);
        if (before_commit) {
          while (!saving->finished()) std::this_thread::yield();
          world.all().barrier();
          if (world.rank() == 0) before_commit();
        }
        saving->commit();
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        messages.emplace_back(error.what());
      }
    });
    return messages;
  }
  std::vector<std::string> save() {
    return save([this](int) { return root_; });
  }
  void TearDown() override { io_fault::disarm(); }

  ckpt::testing::TemporaryDirectory directory_{"save-agreement",
                                               ckpt::testing::memory_directory_path()};
  fs::path root_ = directory_ / "checkpoints";
};

TEST_F(SaveAgreement, TheManifestHasTheFilesOfAllRanks) {
  EXPECT_THAT(save(), IsEmpty());
  const fs::path checkpoint = root_ / "step-00000001";
  const std::string manifest = read_file(checkpoint / "manifest.json");
  int files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename();
    if (name == "manifest.json") continue;
    EXPECT_THAT(manifest, HasSubstr('"' + name + '"'));
    ++files;
  }
  EXPECT_GE(files, 2 * kRanks);
}

TEST_F(SaveAgreement, AFileOfAnotherRankThatIsGoneIsNamed) {
  const std::string file = "model-00003-of-00003.safetensors";
  const auto messages = save([this](int) { return root_; },
                             [&] {
                               for (const auto& entry : fs::directory_iterator(root_)) {
                                 EXPECT_TRUE(fs::remove(entry.path() / file));
                               }
                             });
  EXPECT_THAT(messages, SizeIs(kRanks));
  EXPECT_THAT(messages, Each(HasSubstr(file + ", which another rank wrote, is not here")));
}

TEST_F(SaveAgreement, StorageThatOneRankDoesNotShareIsToldByAll) {
  const auto messages = save([&](int rank) { return rank == 2 ? directory_ / "other" : root_; });
  EXPECT_THAT(messages, SizeIs(kRanks));
  EXPECT_THAT(messages, Each(HasSubstr("storage that all ranks share")));
  EXPECT_THAT(messages, Each(HasSubstr((directory_ / "other").string())));
}

TEST_F(SaveAgreement, WhateverCannotBePutInPlaceFailsAll) {
  int renames = 0;  // until nothing fails: the last are the lead's alone
  for (;; ++renames) {
    io_fault::arm(io_fault::Call::kRename, renames + 1, ENOSPC);
    const std::vector<std::string> messages = save();
    io_fault::disarm();
    if (messages.empty()) break;
    ASSERT_THAT(messages, SizeIs(kRanks)) << "rename " << renames + 1;
    EXPECT_THAT(messages, Each(messages.front()));
  }
  EXPECT_GT(renames, 2 * kRanks) << "each file of each rank, and the lead's";
  EXPECT_TRUE(fs::exists(root_ / "step-00000001" / "manifest.json"));
}

}  // namespace
}  // namespace atl::train
