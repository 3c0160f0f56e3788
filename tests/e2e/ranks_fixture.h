#pragma once

// What the tests of several ranks by the program share.

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/ckpt/safetensors/safetensors.h"
#include "atoll/metrics/jsonl_sink.h"
#include "train_fixture.h"

namespace atl::e2e {

/// Runs on several ranks. Every rank has one thread, so that two cores are enough.
class Ranks : public Train {
 protected:
  std::vector<std::string> ranked(const std::string& name,
                                  const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = command(name, more);
    arguments.emplace_back("--device.threads=1");
    return arguments;
  }
  Finished run_ranks(const std::string& name, const std::vector<std::string>& more) const {
    return atoll(ranked(name, more));
  }
  /// The hash of every tensor of a checkpoint, parameters and optimizer, however many ranks wrote
  /// it.
  std::map<std::string, std::string> weights(const std::string& name,
                                             std::int64_t step = 40) const {
    std::map<std::string, std::string> hashes;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint(name, step))) {
      if (entry.path().extension() != ".safetensors") continue;
      const ckpt::SafetensorsFile file(entry.path());
      for (const ckpt::SafetensorsEntry& tensor : file.entries()) {
        const std::span<const std::byte> bytes = file.bytes(tensor.name);
        hashes[tensor.name] = to_hex(hash_bytes(bytes.data(), bytes.size()));
      }
    }
    EXPECT_FALSE(hashes.empty());
    return hashes;
  }
  /// `atoll launch` into the run called `name`.
  std::vector<std::string> launch(const std::string& name,
                                  const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = ranked(name, more);
    arguments.front() = "launch";
    return arguments;
  }

  /// What /proc has of a process under that name, empty when it is gone: a stream's own operator
  /// does not throw when that happens while it reads.
  static std::string proc_file(pid_t pid, const char* name) {
    std::ostringstream bytes;
    bytes << std::ifstream(fmt::format("/proc/{}/{}", pid, name), std::ios::binary).rdbuf();
    return bytes.str();
  }
  /// A process's words, empty when it is gone.
  static std::string command_line(pid_t pid) {
    std::string words = proc_file(pid, "cmdline");
    std::replace(words.begin(), words.end(), '\0', ' ');
    return words;
  }
  /// Processes of this test, by the directory that they all are called with.
  std::vector<pid_t> processes() const {
    std::vector<pid_t> found;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != name.npos) continue;
      const pid_t pid = std::stoi(name);
      if (command_line(pid).find(root_.path.string()) != std::string::npos) found.push_back(pid);
    }
    return found;
  }
  /// The process that was started as this rank; 0: there is none.
  pid_t process_of(int rank) const {
    for (const pid_t pid : processes()) {
      const std::string words = command_line(pid);
      if (words.find("atoll train") == words.npos || words.find("ssh ") == 0) continue;
      for (const char* flag : {"--rank", "--member"}) {
        if (words.find(fmt::format("{}={} ", flag, rank)) != words.npos) return pid;
      }
      const std::string environment = proc_file(pid, "environ");
      if (environment.find(fmt::format("OMPI_COMM_WORLD_RANK={}", rank) + '\0') !=
          environment.npos) {
        return pid;
      }
    }
    return 0;
  }
};

/// What an exact run is called with that any number of ranks up to eight can train, to the same
/// bits.
inline std::vector<std::string> exact(std::vector<std::string> more, int steps = 300) {
  more.insert(more.end(), {"--train.exact=true", "--train.batch_size=8", "--train.micro_batch=1",
                           "--log.every=1", "--log.tensorboard=false", "--optim.lr=0.003",
                           "--checkpoint.every=20", fmt::format("--train.steps={}", steps)});
  return more;
}
constexpr int kEndless = 10000000;

/// Runs under `atoll launch`, beside one that nothing disturbs.
class Elastic : public Ranks {
 protected:
  /// Trains "whole" for so many steps.
  void train_whole(int steps) const {
    const Finished finished = run_ranks("whole", exact({}, steps));
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
  }
  /// The records of a run so far.
  std::vector<metrics::Record> records(const std::string& name) const {
    const auto log = root_.path / name / "metrics.jsonl";
    if (!std::filesystem::exists(log)) return {};
    return metrics::read_jsonl(log);
  }
  /// Waits until a run has taken so many steps; false after a minute.
  bool took(const std::string& name, std::int64_t steps) const {
    return soon([&] {
      const auto so_far = records(name);
      return !so_far.empty() && so_far.back().step >= steps;
    });
  }
  /// Sends SIGKILL to the process that was started as this rank; 0: there is none.
  pid_t kill_rank(int rank) const {
    const pid_t victim = process_of(rank);
    if (victim != 0) ::kill(victim, SIGKILL);
    return victim;
  }
  /// How many kills at random moments there are to be.
  static int num_kills() {
    const char* wanted = std::getenv("ATOLL_TEST_KILLS");  // a hundred take some minutes
    return wanted == nullptr ? 4 : std::atoi(wanted);
  }
};

/// An ssh that runs its command here, when the host is one of two that it knows.
class Hosts : public Ranks {
 protected:
  void SetUp() override {
    Ranks::SetUp();
    std::filesystem::create_directories(root_.path / "bin");
    write_file(root_.path / "bin" / "ssh", R"(#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
host=$1
shift
case $host in
  near-*) ;;
  *) echo "ssh: no way to $host" >&2; exit 255 ;;
esac
echo "$host" >>")" + path("asked") + R"("
exec sh -c "$*"
)");
    std::filesystem::permissions(root_.path / "bin" / "ssh", std::filesystem::perms::all);
    before_ = std::getenv("PATH");
    ::setenv("PATH", (path("bin") + ":" + before_).c_str(), 1);
  }
  void TearDown() override { ::setenv("PATH", before_.c_str(), 1); }

  std::string before_;
};

/// Whether there is an mpirun to call.
inline bool has_mpirun() {
  return std::system("command -v mpirun >/dev/null 2>&1") == 0;
}

}  // namespace atl::e2e
