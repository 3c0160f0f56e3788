#pragma once

// What the tests of several islands by the program share.

#include <signal.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ranks_fixture.h"

namespace atl::e2e {

/// Runs of islands on this machine; each has one thread.
class Islands : public Elastic {
 protected:
  /// Where the island called `name` of the run called `run` lives.
  static std::string within(const std::string& run, int number) {
    return fmt::format("{}/islands/island-{}", run, number);
  }
  std::vector<std::string> islanded(const std::string& run, int islands, int steps,
                                    std::vector<std::string> more = {}) const {
    more.insert(more.begin(),
                {"--islands", std::to_string(islands), fmt::format("--train.steps={}", steps),
                 "--outer.inner_steps=10", "--outer.grace_s=" + grace_s_, "--log.every=1",
                 "--log.tensorboard=false", "--train.batch_size=2", "--train.micro_batch=2"});
    return ranked(run, more);
  }
  /// The process that is the island.
  pid_t island(int number) const {
    const std::string flag = fmt::format("--island.name=island-{} ", number);
    for (const pid_t pid : processes()) {
      if (command_line(pid).find(flag) != std::string::npos) return pid;
    }
    return 0;
  }
  /// An island that is started by itself.
  std::vector<std::string> joining(const std::string& run, const std::string& name,
                                   const std::string& coordinator,
                                   std::vector<std::string> more = {}) const {
    more.insert(more.begin(),
                {"--island.coordinator=" + coordinator, "--island.name=" + name,
                 "--outer.inner_steps=10", "--outer.grace_s=" + grace_s_, "--log.every=1",
                 "--log.tensorboard=false", "--train.batch_size=2", "--train.micro_batch=2"});
    return ranked(run, more);
  }
  // For an island that is only slow, outer steps wait for so long.
  std::string grace_s_ = "1";
  static constexpr const char* kAnywhere = "127.0.0.1:0";
  /// Where a coordinator says that it is.
  static std::string address_of(const Program& coordinator) {
    static const std::string kWords = "coordinator at ";
    std::string address;
    soon([&] {
      const std::string said = coordinator.errors();
      const std::size_t at = said.find(kWords);
      if (at == said.npos) return false;
      const std::size_t begin = at + kWords.size();
      const std::size_t end = said.find(';', begin);
      if (end == said.npos) return false;
      address = said.substr(begin, end - begin);
      return true;
    });
    return address;
  }
  /// The hashes of the model in a run's newest checkpoint, without optimizer and outer state.
  std::map<std::string, std::string> model(const std::string& run) const {
    return tensors(run, "model");
  }
  /// The hashes of those tensors of a run's newest checkpoint whose files and names begin so.
  std::map<std::string, std::string> tensors(const std::string& run, const std::string& files,
                                             const std::string& names = "") const {
    const std::vector<std::int64_t> steps =
        ckpt::checkpoint_steps(root_.path / run / "checkpoints");
    EXPECT_FALSE(steps.empty()) << run;
    if (steps.empty()) return {};
    std::map<std::string, std::string> hashes;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint(run, steps.back()))) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(files) || !name.ends_with(".safetensors")) continue;
      const ckpt::SafetensorsFile file(entry.path());
      for (const ckpt::SafetensorsEntry& tensor : file.entries()) {
        if (!tensor.name.starts_with(names)) continue;
        const std::span<const std::byte> bytes = file.bytes(tensor.name);
        hashes[tensor.name] = to_hex(hash_bytes(bytes.data(), bytes.size()));
      }
    }
    EXPECT_FALSE(hashes.empty()) << run;
    return hashes;
  }
  /// That the outer steps of a run of two islands are in its log, each once and in order, with both
  /// in all of the first `full`. When one of them was slower and so was leased less, short ones
  /// follow.
  void expect_outer_steps(const std::string& run, std::size_t full) const {
    const std::vector<double> steps = values(run, "outer_step");
    const std::vector<double> members = values(run, "outer_members");
    ASSERT_GE(steps.size(), full);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i], static_cast<double>(i + 1));
      if (i < full) {
        EXPECT_EQ(members[i], 2) << "outer step " << i + 1;
      }
    }
  }
  /// The values of a metric in the order of their records.
  std::vector<double> values(const std::string& run, const std::string& metric) const {
    std::vector<double> found;
    for (const metrics::Record& record : records(run)) {
      for (const auto& [name, value] : record.values) {
        if (name != metric) continue;
        if (const auto* real = std::get_if<double>(&value)) found.push_back(*real);
        if (const auto* whole = std::get_if<std::int64_t>(&value)) {
          found.push_back(static_cast<double>(*whole));
        }
      }
    }
    return found;
  }
};

}  // namespace atl::e2e
