#pragma once

// Whole runs of a tiny model in a directory of their own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/rng.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/safetensors/writer.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/train/trainer.h"

namespace atl::train {

/// A run directory and a small text of made-up words, removed at the end.
class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::temp_directory_path() /
            fmt::format("atoll-trainer-{}-{}", ::getpid(), info->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    write_text(root_ / "text.txt", 1);
  }
  void TearDown() override {
    io_fault::disarm();
    std::filesystem::remove_all(root_);
  }

  static void write_text(const std::filesystem::path& path, std::uint64_t seed) {
    const RngStream stream(seed, RngPurpose::kSynthetic);
    const std::vector<std::string> words = {"the",  "sea", "is",      "wide", "and",  "a",
                                            "ring", "of",  "islands", "lies", "there"};
    std::string text;
    for (std::uint64_t i = 0; i < 6000; ++i) {
      text += words[stream.word(i) % words.size()];
      text += stream.word(i + 100000) % 9 == 0 ? ".\n" : " ";
    }
    write_file(path, text);
  }

  // The settings of a tiny run in the directory `name`, but for `overrides`.
  void configure(Settings& settings, const std::string& name,
                 const std::vector<std::string>& overrides) const {
    std::map<std::string, std::string> values = {{"run.dir", (root_ / name).string()},
                                                 {"data.text", (root_ / "text.txt").string()},
                                                 {"train.context", "32"},
                                                 {"train.batch_size", "4"},
                                                 {"train.micro_batch", "2"},
                                                 {"train.steps", "20"},
                                                 {"train.dropout", "0.1"},
                                                 {"device.threads", "2"},
                                                 {"log.every", "1"},
                                                 {"log.format", "json"},
                                                 {"optim.warmup_steps", "2"}};
    if (inline_model_) {
      values.insert({{"data.vocab_size", "300"},
                     {"model.hidden_size", "32"},
                     {"model.num_hidden_layers", "2"},
                     {"model.num_attention_heads", "4"},
                     {"model.num_key_value_heads", "2"}});
    }
    for (const std::string& one : overrides) {
      if (one.find('=') == one.npos) {
        values.erase(one.substr(2));
        continue;
      }
      values[one.substr(2, one.find('=') - 2)] = one.substr(one.find('=') + 1);
    }
    for (const auto& [key, value] : values) settings.override("--" + key + "=" + value);
  }

  // One run to its end; an override without a value takes away what is set below. Or until the
  // signal that a sink raises after `stop_after` steps.
  TrainOutcome train(const std::string& name, const std::vector<std::string>& overrides = {},
                     std::int64_t stop_after = -1) {
    TrainConfig config;
    Settings settings = make_settings(config);
    configure(settings, name, overrides);
    validate(config, settings);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Captured captured;
    Trainer trainer(config, settings);
    Raiser raiser(stop_after);
    trainer.add_sink(raiser);
    return trainer.run();
  }

  // Standard streams go back even when a run throws.
  struct Captured {
    ~Captured() {
      ::testing::internal::GetCapturedStdout();
      ::testing::internal::GetCapturedStderr();
    }
  };

  class Raiser final : public metrics::Sink {
   public:
    explicit Raiser(std::int64_t step) : step_(step) {}
    void write(const metrics::Record& record) override {
      if (record.step == step_) std::raise(SIGTERM);
    }
    void flush() override {}

   private:
    std::int64_t step_;
  };

  std::string tensors(const std::filesystem::path& checkpoint) const {
    return read_file(checkpoint / "model.safetensors") +
           read_file(checkpoint / "optimizer.safetensors");
  }

  // Copies a model directory with one element of one tensor made NaN.
  static void poison(const std::filesystem::path& from, const std::filesystem::path& to,
                     const std::string& name, std::int64_t element) {
    std::filesystem::create_directories(to);
    for (const char* file : {"config.json", "tokenizer.json"})
      std::filesystem::copy_file(from / file, to / file);
    const ckpt::SafetensorsFile model(from / "model.safetensors");
    std::deque<std::vector<float>> memory;
    std::vector<ckpt::NamedTensor> tensors;
    for (const ckpt::SafetensorsEntry& entry : model.entries()) {
      const Spec spec = model.spec(entry.name);
      auto& values = memory.emplace_back(static_cast<std::size_t>(spec.shape.num_elements()));
      model.read(entry.name, Tensor(values.data(), spec));
      if (entry.name == name) values.at(static_cast<std::size_t>(element)) = std::nanf("");
      tensors.push_back({entry.name, Tensor(values.data(), spec)});
    }
    ckpt::write_safetensors(to / "model.safetensors", tensors);
  }

  std::string error_of(const std::function<void()>& fn, ErrorKind kind) {
    try {
      fn();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path root_;
  bool inline_model_ = true;
};

}  // namespace atl::train
