#include "atoll/ckpt/checkpoint.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>

#include "atoll/base/files/lock.h"
#include "atoll/base/log.h"
#include "atoll/ckpt/checkpoint_hold.h"
#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/ckpt/testing.h"

namespace atl::ckpt {
namespace {

namespace fs = std::filesystem;
using io_fault::Call;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Checkpoint : public ::testing::Test {
 protected:
  void SetUp() override { log::set_level(log::Level::kError); }
  void TearDown() override { io_fault::disarm(); }

  fs::path save(std::int64_t step, float value = 1) {
    std::vector<float> weights(5, value);
    const NamedTensor tensor{"w", {weights.data(), {Dtype::kF32, {5}}}};
    CheckpointWriter writer(root_, step);
    writer.add("config.json", "{}");
    writer.add_tensors("model.safetensors", std::span(&tensor, 1));
    write_file(writer.file_path("trainer.json"), "{\"lr\":0.1}");
    return writer.commit();
  }
  std::int64_t newest() {
    const std::optional<CheckpointInfo> info = newest_verified(root_);
    return info ? info->step : -1;
  }
  float value_of(std::int64_t step) {
    const SafetensorsFile file(root_ / fmt::format("step-{:08}", step) / "model.safetensors");
    return *file.tensor("w").data<float>();
  }
  int num_entries() {
    return static_cast<int>(std::distance(fs::directory_iterator(root_), fs::directory_iterator()));
  }
  // A process number that no process has any more.
  static int dead_pid() {
    const int child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    return child;
  }

  testing::TemporaryDirectory run_{"checkpoint"};
  fs::path root_ = run_ / "checkpoints";
};

TEST_F(Checkpoint, IsWrittenWholeAndFound) {
  EXPECT_EQ(newest(), -1);
  EXPECT_EQ(save(100), root_ / "step-00000100");
  save(20);
  const CheckpointInfo info = *newest_verified(root_);
  EXPECT_EQ(info.step, 100);
  ASSERT_EQ(info.files.size(), 3u);
  EXPECT_EQ(info.files[2].name, "trainer.json");
  EXPECT_EQ(info.files[2].bytes, 10u);
  EXPECT_THAT(checkpoint_steps(root_), ElementsAre(20, 100));
  EXPECT_EQ(num_entries(), 2);
}

TEST_F(Checkpoint, WithoutCommitNothingRemains) {
  {
    CheckpointWriter writer(root_, 1);
    writer.add("config.json", "{}");
  }
  EXPECT_EQ(num_entries(), 0);
}

TEST_F(Checkpoint, SameStepIsReplaced) {
  save(7, 1);
  save(7, 2);
  EXPECT_EQ(newest(), 7);
  EXPECT_EQ(value_of(7), 2);
  EXPECT_EQ(num_entries(), 1);
}

// Where the file system cannot exchange, the fault stands for its answer.
TEST_F(Checkpoint, SameStepIsReplacedWithoutExchange) {
  save(7, 1);
  io_fault::arm(Call::kRename, 5, EINVAL);  // four files before it
  save(7, 2);
  EXPECT_EQ(value_of(7), 2);
  EXPECT_EQ(num_entries(), 1);
}

class CheckpointFault : public Checkpoint, public ::testing::WithParamInterface<Call> {};

TEST_P(CheckpointFault, AnyFailedCallLeavesThePreviousOne) {
  for (const bool same_step : {false, true}) {
    fs::remove_all(root_);
    save(1, 1);
    bool saved = false;
    int num_failures = 0;
    for (int n = 1; !saved; ++n) {
      io_fault::arm(GetParam(), n, ENOSPC);
      std::string message;
      try {
        save(same_step ? 1 : 2, 2);
        saved = true;
      } catch (const Error& error) {
        message = error.what();
        ++num_failures;
      }
      io_fault::disarm();
      if (saved) break;
      EXPECT_THAT(message, HasSubstr(root_.string()));
      EXPECT_THAT(message, HasSubstr("No space left"));
      // Flushing the root comes after the new one took its place.
      const bool in_place = message.find("flush directory " + root_.string() + ":") != message.npos;
      EXPECT_EQ(newest(), in_place && !same_step ? 2 : 1) << message;
      EXPECT_EQ(value_of(newest()), in_place ? 2 : 1) << message;
      EXPECT_EQ(num_entries(), in_place && !same_step ? 2 : 1) << message;
      if (in_place) {
        fs::remove_all(root_);
        save(1, 1);
      }
    }
    EXPECT_GE(num_failures, 4);  // at least each of the four files
    EXPECT_EQ(value_of(newest()), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, CheckpointFault,
                         ::testing::Values(Call::kOpen, Call::kWrite, Call::kSync, Call::kRename));

TEST_F(Checkpoint, AnyFlippedBitFallsBackToTheOlder) {
  save(1);
  const fs::path newest_path = save(2);
  for (const fs::directory_entry& entry : fs::directory_iterator(newest_path)) {
    const std::string content = read_file(entry.path());
    for (std::size_t byte = 0; byte < content.size(); ++byte) {
      const auto put = [&](char c) {  // in place: write_file would wait for the disk each time
        std::FILE* file = std::fopen(entry.path().c_str(), "r+b");
        std::fseek(file, static_cast<long>(byte), SEEK_SET);
        std::fputc(c, file);
        std::fclose(file);
      };
      put(static_cast<char>(content[byte] ^ (1 << byte % 8)));
      ASSERT_EQ(newest(), 1) << entry.path() << " byte " << byte;
      put(content[byte]);
    }
    ASSERT_EQ(newest(), 2);
  }
}

TEST_F(Checkpoint, WhatIsNoFileInAFilesPlaceFallsBackToTheOlder) {
  const std::vector<std::pair<const char*, std::function<void(const fs::path&)>>> kinds = {
      {"a device", [](const fs::path& path) { fs::create_symlink("/dev/zero", path); }},
      {"a pipe", [](const fs::path& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); }},
      {"a directory", [](const fs::path& path) { fs::create_directory(path); }},
      {"a link to nothing", [](const fs::path& path) { fs::create_symlink("gone", path); }},
      {"a link to itself", [](const fs::path& path) { fs::create_symlink(path.filename(), path); }},
      {"a long file", [](const fs::path& path) {
         write_file(path, "");
         fs::resize_file(path, (std::uint64_t{64} << 20) + 1);
       }}};
  save(10);
  for (const char* file : {kManifestFile, "config.json", "model.safetensors", "trainer.json"}) {
    for (const auto& [what, make] : kinds) {
      const fs::path path = save(20) / file;
      fs::remove(path);
      make(path);
      EXPECT_EQ(newest(), 10) << file << " is " << what;
      fs::remove_all(root_ / checkpoint_name(20));
    }
  }
}

TEST_F(Checkpoint, ALinkToItselfIsNoCheckpoint) {
  save(10);
  fs::create_symlink(checkpoint_name(20), root_ / checkpoint_name(20));
  EXPECT_EQ(newest(), 10);
}

TEST_F(Checkpoint, DamageIsNamed) {
  const fs::path path = save(3);
  const auto damage = [&]() -> std::string {
    try {
      verify_checkpoint(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
      return error.what();
    }
    return "";
  };
  testing::flip_bit(path / "model.safetensors", 80, 0);
  EXPECT_THAT(damage(), HasSubstr("model.safetensors is damaged: it has hash"));
  write_file(path / "config.json", "");
  EXPECT_THAT(damage(), HasSubstr("config.json is damaged: it has 0 bytes, was written with 2"));
  fs::remove(path / "config.json");
  EXPECT_THAT(damage(), HasSubstr("config.json is damaged: it is missing"));
  EXPECT_THROW(newest_verified(root_), Error);  // all are damaged
  fs::remove(path / kManifestFile);
  EXPECT_THAT(damage(), HasSubstr("it has no manifest.json"));
  fs::rename(save(4), root_ / "step-00000005");
  EXPECT_THROW(verify_checkpoint(root_ / "step-00000005"), Error);
}

TEST_F(Checkpoint, PruneKeepsTheNewest) {
  for (const int step : {1, 2, 3, 4}) save(step);
  EXPECT_EQ(prune_checkpoints(root_, 2), 2);
  EXPECT_THAT(checkpoint_steps(root_), ElementsAre(3, 4));
  EXPECT_EQ(num_entries(), 2);
  EXPECT_EQ(prune_checkpoints(root_, 2), 0);
}

TEST_F(Checkpoint, PruneLeavesWhatIsRead) {
  for (const int step : {1, 2, 3}) save(step);
  {
    const auto held = hold_newest(root_);
    ASSERT_TRUE(held);
    EXPECT_EQ(held->info.step, 3);
    for (const int step : {4, 5}) save(step);
    EXPECT_EQ(prune_checkpoints(root_, 1), 3);
    EXPECT_THAT(checkpoint_steps(root_), ElementsAre(3, 5));
    EXPECT_FALSE(remove_checkpoint(root_, 3));
  }
  EXPECT_EQ(prune_checkpoints(root_, 1), 1);
  EXPECT_THAT(checkpoint_steps(root_), ElementsAre(5));
  EXPECT_EQ(num_entries(), 1);
  EXPECT_EQ(hold_checkpoint(root_ / "step-00000003"), nullptr);
}

TEST_F(Checkpoint, AReaderThatIsKilledHoldsNothing) {
  for (const int step : {1, 2}) save(step);
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto hold = hold_checkpoint(root_ / "step-00000001");
    const char is_held = hold ? 1 : 0;
    if (::write(pipe[1], &is_held, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char is_held = 0;
  ASSERT_EQ(::read(pipe[0], &is_held, 1), 1);
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_EQ(is_held, 1);
  EXPECT_EQ(prune_checkpoints(root_, 1), 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(prune_checkpoints(root_, 1), 1);
  EXPECT_THAT(checkpoint_steps(root_), ElementsAre(2));
}

TEST_F(Checkpoint, PruneRemovesNothingWhenTheNewestIsDamaged) {
  for (const int step : {1, 2, 3}) save(step);
  testing::flip_bit(root_ / "step-00000003" / "model.safetensors", 80, 0);
  EXPECT_THROW(prune_checkpoints(root_, 1), Error);
  EXPECT_THAT(checkpoint_steps(root_), ElementsAre(1, 2, 3));
}

TEST_F(Checkpoint, StaleLeftoversOfTheDeadAreRemoved) {
  save(1, 1);
  save(2, 2);
  const std::string dead = std::to_string(dead_pid());
  const std::string parent = std::to_string(::getppid());
  fs::create_directories(root_ / (".tmp-step-00000003-" + dead));
  fs::create_directories(root_ / (".tmp-step-00000003-" + parent));
  fs::create_directories(root_ / (".tmp-step-00000004-" + parent));  // has a dead one's number
  const DirectoryLock alive(root_ / (".tmp-step-00000003-" + parent), "");
  fs::create_directories(root_ / (".old-step-00000001-" + dead));  // was replaced in time
  fs::rename(root_ / "step-00000002", root_ / (".old-step-00000002-" + dead));  // was not
  fs::create_directories(root_ / "of-the-user");
  clean_stale(root_);
  EXPECT_EQ(num_entries(), 4);
  EXPECT_TRUE(fs::exists(root_ / (".tmp-step-00000003-" + parent)));
  EXPECT_EQ(value_of(1), 1);
  EXPECT_EQ(newest(), 2);
  EXPECT_EQ(value_of(2), 2);
}

TEST_F(Checkpoint, KilledSaveLeavesThePreviousOne) {
  save(1, 1);
  const int child = ::fork();
  if (child == 0) {
    CheckpointWriter writer(root_, 2);
    writer.add("config.json", "{}");
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(num_entries(), 2);
  EXPECT_EQ(newest(), 1);
  clean_stale(root_);
  EXPECT_EQ(num_entries(), 1);
}

}  // namespace
}  // namespace atl::ckpt
