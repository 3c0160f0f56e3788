#pragma once

// What the tests of training by the program share.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/base/rng.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/checkpoint_paths.h"
#include "program.h"

namespace atl::e2e {

/// A text, a recipe for a tiny model of it, and room for runs.
class Train : public ::testing::Test {
 protected:
  void SetUp() override {
    const RngStream stream(1, RngPurpose::kSynthetic);
    const char* const words[] = {"the",  "sea", "is",      "wide", "and",  "a",
                                 "ring", "of",  "islands", "lies", "there"};
    std::string text;
    for (std::uint64_t i = 0; i < 6000; ++i) {
      text += words[stream.word(i) % std::size(words)];
      text += stream.word(i + 100000) % 9 == 0 ? ".\n" : " ";
    }
    write_file(root_.path / "text.txt", text);
    write_file(recipe(), fmt::format(R"([run]
dir = "{0}/run"
[model]
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[data]
text = ["{0}/text.txt"]
vocab_size = 300
[train]
steps = 40
batch_size = 4
micro_batch = 2
context = 32
dropout = 0.1
[optim]
lr = 0.01
[log]
every = 10
)",
                                     root_.path.string()));
  }

  std::string recipe() const { return (root_.path / "recipe.toml").string(); }
  std::string path(const std::string& name) const { return (root_.path / name).string(); }

  /// `atoll train` into the run called `name`.
  std::vector<std::string> command(const std::string& name,
                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train", recipe(), "--run.dir=" + path(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Finished train(const std::string& name, const std::vector<std::string>& more = {}) const {
    return atoll(command(name, more));
  }
  /// The same, which must succeed.
  Finished trained(const std::string& name, const std::vector<std::string>& more = {}) const {
    Finished finished = train(name, more);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return finished;
  }
  std::string generated(const std::string& model, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"generate", path(model),    "--prompt",
                                          "the sea",  "--max-tokens", "20"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = atoll(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_THAT(finished.err, ::testing::IsEmpty());
    EXPECT_THAT(finished.out, ::testing::StartsWith("the sea"));
    return finished.out;
  }

  std::filesystem::path checkpoint(const std::string& run, std::int64_t step) const {
    return root_.path / run / "checkpoints" / ckpt::checkpoint_name(step);
  }
  /// What training has made: bit for bit, parameters and optimizer.
  std::string tensors(const std::string& run, std::int64_t step) const {
    return read_file(checkpoint(run, step) / "model.safetensors") +
           read_file(checkpoint(run, step) / "optimizer.safetensors");
  }
  /// Waits until `run` has taken steps and written a line about them; false after a minute.
  bool trains_soon(const std::string& run) const {
    return soon([&] {
      const std::filesystem::path log = root_.path / run / "metrics.jsonl";
      return std::filesystem::exists(log) && std::filesystem::file_size(log) > 0;
    });
  }
  /// Waits until something has happened; false after a minute, or after so many.
  static bool soon(const std::function<bool()>& happened,
                   std::chrono::minutes within = std::chrono::minutes(1)) {
    const auto end = std::chrono::steady_clock::now() + within;
    while (std::chrono::steady_clock::now() < end) {
      if (happened()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  const TemporaryDirectory root_;
};

}  // namespace atl::e2e
