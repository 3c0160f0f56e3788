// Checkpoints that several ranks write together: files of even size, faults told once, and nothing
// left of what was not committed.

#include <gmock/gmock.h>

#include <mutex>
#include <set>

#include "atoll/base/files/file.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/testing.h"
#include "atoll/train/checkpoint/checkpoint_layouts_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::position_of;
using testing::RankOf;

class SharedSave : public ::testing::Test {
 protected:
  // Runs `body` on three ranks with ZeRO 3, and returns what the ranks threw.
  std::vector<std::string> on_ranks(const std::function<void(RankOf& rank)>& body) {
    std::vector<std::string> messages;
    std::mutex mutex;
    int reports = 0;
    comm::run_threads(3, {.timeout_s = 60}, [&](comm::World& world) {
      RankOf rank(world, {"adamw"}, {3, 3});
      try {
        body(rank);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        messages.emplace_back(error.what());
        reports += world.reports() ? 1 : 0;
      }
    });
    EXPECT_EQ(reports, messages.empty() ? 0 : 1) << "told once";
    return messages;
  }
  fs::path save(std::int64_t step, CheckpointSave::Mode mode = CheckpointSave::Mode::kNow) {
    fs::path path;
    std::mutex mutex;
    messages_ = on_ranks([&](RankOf& rank) {
      const auto saving = begin_save(root_, rank.state, position_of(step), {}, {}, mode);
      const fs::path written = saving->commit();
      const std::lock_guard lock(mutex);
      path = written;
    });
    return path;
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(root_)) found.insert(entry.path().filename());
    return found;
  }
  void TearDown() override { io_fault::disarm(); }

  ckpt::testing::TemporaryDirectory directory_{"shared-save",
                                               ckpt::testing::memory_directory_path()};
  fs::path root_ = directory_ / "checkpoints";
  std::vector<std::string> messages_;
};

TEST_F(SharedSave, IsAHuggingFaceDirectoryOfEvenFiles) {
  const fs::path path = save(1);
  const ckpt::HfDirectory directory(path);
  ASSERT_EQ(directory.files().size(), 3U);
  std::uint64_t total = 0, largest = 0, largest_tensor = 0;
  for (const ckpt::SafetensorsFile& file : directory.files()) {
    EXPECT_EQ(file.metadata().at("format"), "pt") << "transformers asks for it";
    const std::uint64_t bytes = file.entries().back().end;
    total += bytes;
    largest = std::max(largest, bytes);
    for (const auto& entry : file.entries()) {
      largest_tensor = std::max(largest_tensor, entry.end - entry.begin);
    }
  }
  // Each parameter went to whoever had least.
  EXPECT_LE(largest, total / 3 + largest_tensor);
  EXPECT_TRUE(fs::exists(path / "model-00003-of-00003.safetensors"));
  EXPECT_TRUE(fs::exists(path / "optimizer-00003-of-00003.safetensors"));
  EXPECT_FALSE(fs::exists(path / "optimizer.safetensors"));
}

TEST_F(SharedSave, ADiskThatIsFullForOneRankFailsAllOnceAndKeepsWhatWasThere) {
  const fs::path before = save(1);
  const std::string manifest = read_file(before / "manifest.json");
  for (const auto mode : {CheckpointSave::Mode::kNow, CheckpointSave::Mode::kBeside}) {
    for (const auto call : {io_fault::Call::kOpen, io_fault::Call::kWrite, io_fault::Call::kSync,
                            io_fault::Call::kRename}) {
      for (const int countdown : {1, 3, 6}) {
        io_fault::arm(call, countdown, ENOSPC);
        save(1, mode);
        io_fault::disarm();
        ASSERT_EQ(messages_.size(), 3U) << static_cast<int>(call) << " " << countdown;
        EXPECT_THAT(messages_,
                    ::testing::Each(AllOf(HasSubstr("No space left"), messages_.front())));
        EXPECT_EQ(names(), std::set<std::string>{"step-00000001"});
        EXPECT_EQ(read_file(before / "manifest.json"), manifest);
        ckpt::verify_checkpoint(before);
      }
    }
  }
  save(1, CheckpointSave::Mode::kBeside);
  EXPECT_TRUE(messages_.empty());
}

TEST_F(SharedSave, WhatIsNotCommittedLeavesNothing) {
  const fs::path before = save(1);
  on_ranks([&](RankOf& rank) {
    const auto mode = CheckpointSave::Mode::kBeside;
    begin_save(root_, rank.state, position_of(2), {}, {}, mode);
    rank.state.group()->barrier();
  });
  EXPECT_FALSE(fs::exists(root_ / "step-00000002"));
  ckpt::clean_stale(root_);  // of a rank that wrote while the lead removed
  EXPECT_EQ(ckpt::newest_verified(root_)->path, before);
}

TEST_F(SharedSave, AFileThatIsNotTheRightOneIsNamed) {
  const fs::path path = save(1);
  const fs::path second = save(2);
  const auto refusal = [&](const fs::path& file, const std::function<void()>& change) {
    const std::string content = read_file(file);
    change();
    std::string message = "no error";
    try {
      ckpt::verify_checkpoint(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
      message = error.what();
    }
    write_file(file, content);
    return message;
  };
  const fs::path weights = path / "model-00002-of-00003.safetensors";
  const fs::path optimizer = path / "optimizer-00002-of-00003.safetensors";
  EXPECT_THAT(refusal(weights, [&] { fs::remove(weights); }),
              AllOf(HasSubstr(weights.string()), HasSubstr("is missing")));
  EXPECT_THAT(refusal(optimizer, [&] { ckpt::testing::flip_bit(optimizer, 3000, 1); }),
              AllOf(HasSubstr(optimizer.string()), HasSubstr("hash")));
  const fs::path foreign = path / "optimizer-00003-of-00003.safetensors";
  EXPECT_THAT(refusal(optimizer, [&] { write_file(optimizer, read_file(foreign)); }),
              HasSubstr(optimizer.string()));
  ckpt::verify_checkpoint(path);
  // Without a manifest, as an export has none.
  const auto error_of = [](const std::function<void()>& action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of([&] {
                const std::vector<fs::path> files = {optimizer, foreign, optimizer};
                const ckpt::SafetensorsSet set(files);
              }),
              HasSubstr("both have a tensor \"exp_avg."));
  EXPECT_THAT(error_of([&] {
                const std::vector<fs::path> files = {optimizer, foreign};
                ckpt::SafetensorsSet(files).file_of("exp_avg.none");
              }),
              AllOf(HasSubstr("(or 1 others) has no tensor \"exp_avg.none\""),
                    HasSubstr(optimizer.string())));
  fs::remove(weights);
  EXPECT_THAT(error_of([&] { ckpt::HfDirectory directory(path); }),
              HasSubstr("model-00002-of-00003.safetensors"));
}

TEST_F(SharedSave, StorageThatIsNotSharedIsToldSo) {
  try {
    const ckpt::CheckpointPart part(directory_ / "elsewhere");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), HasSubstr("storage that all ranks share"));
  }
  ckpt::CheckpointWriter writer(root_, 3);
  writer.include({"model-00002-of-00002.safetensors", 10, "00"});
  try {
    writer.commit();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model-00002-of-00002.safetensors"),
                                    HasSubstr("storage that all ranks share")));
  }
}

}  // namespace
}  // namespace atl::train
