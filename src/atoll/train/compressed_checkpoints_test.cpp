// Checkpoints of compressed data parallel: what ranks owe is in them.

#include <gmock/gmock.h>

#include <cmath>

#include "atoll/train/compressed_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Compressed;
using testing::compressed;
using ::testing::HasSubstr;
using testing::Layout;
using testing::onebit;
using testing::position_of;
using testing::RankOf;
using testing::Variant;
using testing::zeroone;

double sum_of_owed(const fs::path& checkpoint, int ranks, double* largest = nullptr) {
  double sum = 0;
  const auto tensors = testing::tensors_of(checkpoint);
  std::map<std::string, std::vector<double>> sums;
  for (const auto& [name, bytes] : tensors) {
    if (!name.starts_with("owed.")) continue;
    const std::size_t at = name.find('.', 5);
    EXPECT_LT(std::stoi(name.substr(5, at - 5)), ranks);
    std::vector<double>& one = sums[name.substr(at)];
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    one.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) one[i] += static_cast<double>(values[i]);
  }
  // In an order of its own, which a sum of the same numbers has again.
  for (const auto& [name, one] : sums) {
    for (std::size_t i = 0; i < one.size(); ++i) {
      sum += one[i] * static_cast<double>(1 + i % 7);
      if (largest != nullptr) *largest = std::max(*largest, std::abs(one[i]));
    }
  }
  return sum;
}

class CompressedCheckpoints : public Compressed {
 protected:
  // Trains from a checkpoint, or from the beginning where it is empty, and writes another.
  fs::path go_on(const Variant& variant, const Layout& layout, const fs::path& from, int first,
                 int end, const std::string& name) {
    fs::path written;
    on_ranks(variant, layout, [&](RankOf& rank, int number) {
      if (!from.empty()) {
        rank.forget();
        load_checkpoint(ckpt::verify_checkpoint(from), rank.state, rank.threads());
      }
      for (int i = first; i < end; ++i) EXPECT_TRUE(rank.step(i).taken());
      const fs::path path = save_checkpoint(root(name), rank.state, position_of(end), {});
      if (number == 0) written = path;
    });
    return written;
  }
};

TEST_F(CompressedCheckpoints, FiftyAndFiftyAreAHundred) {
  const std::vector<std::pair<Variant, Layout>> cases = {{compressed("int8"), {2, 1}},
                                                         {compressed("int4"), {3, 3}},
                                                         {compressed("int4", "int4"), {2, 2}},
                                                         {compressed("none", "int4"), {3, 1}},
                                                         {compressed("powersgd"), {2, 0}},
                                                         {onebit(3), {3, 0}},
                                                         {onebit(6), {2, 0}},
                                                         {onebit(3), {3, 1}},
                                                         {onebit(6), {2, 1}},
                                                         {zeroone(2, 2), {3, 0}},
                                                         {zeroone(100), {2, 0}}};
  for (const auto& [variant, layout] : cases) {
    const fs::path whole = go_on(variant, layout, {}, 0, 8, "whole");
    const fs::path half = go_on(variant, layout, {}, 0, 4, "half");
    const fs::path resumed = go_on(variant, layout, half, 4, 8, "resumed");
    EXPECT_TRUE(testing::tensors_of(resumed) == testing::tensors_of(whole))
        << variant.name << " in " << layout.name();
  }
}

TEST_F(CompressedCheckpoints, OtherRanksOweTheSameSum) {
  for (const Variant& variant :
       {compressed("int8"), compressed("int4"), compressed("powersgd"), onebit(2), zeroone(1, 2)}) {
    const bool shards = variant.compress.starts_with("int");
    for (const auto& [before, after] : {std::pair(4, 2), std::pair(2, 4), std::pair(3, 2)}) {
      const fs::path old = go_on(variant, {before, shards ? 1 : 0}, {}, 0, 5, "old");
      const fs::path now = go_on(variant, {after, shards ? 3 : 0}, old, 5, 5, "now");
      double largest = 0;
      EXPECT_EQ(sum_of_owed(now, after), sum_of_owed(old, before, &largest))
          << variant.name << " " << before << " to " << after;
      EXPECT_GT(largest, 0) << variant.name;
      // And they go on.
      go_on(variant, {after, shards ? 2 : 0}, now, 5, 7, "later");
    }
  }
}

TEST_F(CompressedCheckpoints, EveryWayBeginsFromEveryOther) {
  Variant plain;
  plain.exact = false;
  const std::vector<std::pair<Variant, Layout>> all = {{plain, {2, 1}},
                                                       {compressed("int8"), {2, 3}},
                                                       {compressed("int4", "int4"), {3, 1}},
                                                       {compressed("powersgd"), {2, 0}},
                                                       {onebit(2), {3, 1}},
                                                       {zeroone(2, 2), {2, 0}}};
  for (const auto& [from, from_layout] : all) {
    const fs::path begun = go_on(from, from_layout, {}, 0, 4, "begun");
    for (const auto& [to, to_layout] : all) {
      Variant folds = to;
      folds.compress_owed = "fold";
      const fs::path ended = go_on(folds, to_layout, begun, 4, 6, "ended");
      EXPECT_EQ(read_position(ended).owed.codec, to.compress == "none" ? "" : to.compress);
      if (to.compress == "onebit_adam" && from.compress != to.compress) {
        EXPECT_EQ(read_position(ended).owed.second_updates, 4) << "from " << from.name;
      }
    }
  }
}

// What is owed as a gradient becomes so much of the momentum.
TEST_F(CompressedCheckpoints, FoldingConservesWhatIsOwed) {
  Variant plain;
  plain.exact = false;
  plain.compress_owed = "fold";
  const fs::path old = go_on(compressed("int4"), {2, 0}, {}, 0, 4, "old");
  const fs::path now = go_on(plain, {2, 0}, old, 4, 4, "now");
  const auto before = testing::tensors_of(old);
  const auto after = testing::tensors_of(now);
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const auto floats = [](const std::string& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const std::vector<float> m0 = floats(before.at("exp_avg." + name));
  const std::vector<float> m1 = floats(after.at("exp_avg." + name));
  const std::vector<float> a = floats(before.at("owed.0." + name));
  const std::vector<float> b = floats(before.at("owed.1." + name));
  for (std::size_t i = 0; i < m0.size(); ++i) {
    EXPECT_NEAR(m1[i], m0[i] + 0.1 * (a[i] + b[i]), 1e-7) << i;
  }
  EXPECT_FALSE(after.contains("owed.0." + name));
}

// A second moment of 2 updates is to AdamW, which takes it for one of 4, what it would be of 4.
// What is owed of a mean over 2 local steps is that much twice.
TEST_F(CompressedCheckpoints, FoldingGivesAdamWMomentsOfItsOwnScale) {
  Variant plain;
  plain.exact = false;
  plain.compress_owed = "fold";
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  for (const auto& [variant, updates, steps] :
       {std::tuple(onebit(2), 2, 1.0), std::tuple(zeroone(2, 2), 2, 2.0)}) {
    const fs::path old = go_on(variant, {2, 0}, {}, 0, 4, "old");
    EXPECT_EQ(read_position(old).owed.second_updates, updates);
    const auto before = testing::tensors_of(old);
    const auto after = testing::tensors_of(go_on(plain, {2, 0}, old, 4, 4, "now"));
    const auto floats = [](const auto& tensors, const std::string& key) {
      const std::string& bytes = tensors.at(key);
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    };
    const std::vector<float> v0 = floats(before, "exp_avg_sq." + name);
    const std::vector<float> v1 = floats(after, "exp_avg_sq." + name);
    const std::vector<float> m0 = floats(before, "exp_avg." + name);
    const std::vector<float> m1 = floats(after, "exp_avg." + name);
    const std::vector<float> a = floats(before, "owed.0." + name);
    const std::vector<float> b = floats(before, "owed.1." + name);
    const std::vector<float> sum = floats(before, "owed_sum." + name);
    const float factor =
        static_cast<float>((1 - std::pow(0.95, 4)) / (1 - std::pow(0.95, updates)));
    for (std::size_t i = 0; i < v0.size(); ++i) {
      EXPECT_NEAR(v1[i], factor * v0[i], 1e-6F * v1[i]) << variant.name << " " << i;
      EXPECT_NEAR(m1[i], m0[i] + steps * ((a[i] + b[i]) / 2 + sum[i]), 1e-7) << variant.name;
    }
  }
}

TEST_F(CompressedCheckpoints, WhatAnotherCodecOwesIsRefused) {
  Variant plain;
  plain.exact = false;
  const fs::path old = go_on(compressed("int4"), {2, 1}, {}, 0, 2, "old");
  for (const Variant& variant : {compressed("int8"), plain}) {
    try {
      go_on(variant, {2, 1}, old, 2, 2, "now");
      ADD_FAILURE() << variant.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("step-00000002: 2 ranks owe each other values of "
                                  "dp.compress = int4, and this run has "),
                        HasSubstr("--dp.compress_owed=fold"), ::testing::Not(HasSubstr("\n"))));
    }
  }
}

}  // namespace
}  // namespace atl::train
