#include "atoll/train/loop/settled_by_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/train/checkpoint/corpus_options.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SettledByData : public ::testing::Test {
 protected:
  SettledByData() {
    std::string pattern = std::filesystem::temp_directory_path() / "atoll-settled-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  ~SettledByData() override { std::filesystem::remove_all(dir_); }

  std::vector<std::string> arguments(const std::string& text, std::vector<std::string> more) const {
    std::vector<std::string> all = {"--data.text=" + (dir_ / text).string(),
                                    "--run.dir=" + (dir_ / "run").string(),
                                    "--data.new_tokenizer=byte",
                                    "--data.held_out=0",
                                    "--eval.every=0",
                                    "--train.context=16",
                                    "--train.batch_size=4",
                                    "--train.micro_batch=2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  void write(const std::string& name, const std::string& content) const {
    write_file(dir_ / name, content);
  }

  // The steps and the packing that a recipe gets.
  std::pair<std::int64_t, std::string> settled(const std::string& text,
                                               std::vector<std::string> more) const {
    Recipe recipe({}, arguments(text, std::move(more)));
    settle_by_data(recipe, /*tells=*/false);
    return {recipe.config().train.steps, recipe.config().data.packing};
  }

  std::filesystem::path dir_;
};

TEST_F(SettledByData, AnEpochIsAllSamplesOnce) {
  // Nine windows of 16 and their last target fit wherever an epoch begins.
  write("a.txt", std::string(16 * 10, 'a'));
  EXPECT_EQ(settled("a.txt", {"--train.epochs=1"}).first, 3) << "9 sequences, 4 a step";
  EXPECT_EQ(settled("a.txt", {"--train.epochs=2"}).first, 5);
  EXPECT_EQ(settled("a.txt", {"--train.epochs=0.5"}).first, 2);
  EXPECT_EQ(settled("a.txt", {"--train.epochs=1000"}).first, 2250);
  EXPECT_EQ(settled("a.txt", {"--train.epochs=2", "--train.steps=5"}).first, 5);
  EXPECT_EQ(settled("a.txt", {}).first, 1000) << "the default of train.steps";
}

TEST_F(SettledByData, StepsAndEpochsThatDisagreeAreRefused) {
  write("a.txt", std::string(160, 'a'));
  const auto refusal = [&](std::vector<std::string> more) {
    try {
      settled("a.txt", std::move(more));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({"--train.epochs=2", "--train.steps=7"}),
              AllOf(HasSubstr("train.epochs = 2 are 5 steps"), HasSubstr("train.steps is 7")));
  EXPECT_THAT(refusal({"--train.epochs=2", "--optim.warmup_steps=6"}),
              HasSubstr("optim.warmup_steps"));
  EXPECT_EQ(refusal({"--train.epochs=2", "--optim.warmup_steps=4"}), "");
}

TEST_F(SettledByData, RowsWithALossOnAPartArePackedWhole) {
  write("pairs.jsonl", R"({"prompt": "a", "completion": "b"})");
  write("texts.jsonl", R"({"text": "abc def abc def abc def"})");
  EXPECT_EQ(settled("pairs.jsonl", {}).second, "documents");
  EXPECT_EQ(settled("pairs.jsonl", {"--data.packing=stream"}).second, "stream");
  EXPECT_EQ(settled("texts.jsonl", {}).second, "stream");
}

TEST_F(SettledByData, EpochsOfPackedRowsCountTheirSequences) {
  std::string rows;
  for (int i = 0; i < 8; ++i) rows += "{\"prompt\": \"abcd\", \"completion\": \"efgh\"}\n";
  write("pairs.jsonl", rows);
  // A row has 8 bytes and the end of text: one to a sequence of 16.
  EXPECT_EQ(settled("pairs.jsonl", {"--train.epochs=3"}).first, 6);
}

TEST_F(SettledByData, WhatDoesNotGoWithItKeepsTheStream) {
  write("pairs.jsonl", R"({"prompt": "a", "completion": "b"})");
  Recipe recipe({}, arguments("pairs.jsonl", {"--device.kind=cuda", "--device.attention=cudnn",
                                              "--train.dtype=bf16"}));
  settle_by_data(recipe, /*tells=*/false);
  EXPECT_EQ(recipe.config().data.packing, "stream");
}

}  // namespace
}  // namespace atl::train
