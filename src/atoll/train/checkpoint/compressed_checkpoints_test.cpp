// Checkpoints of compressed data parallel: the residuals of ranks are in them.

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

double sum_of_residual(const fs::path& checkpoint, int ranks, double* largest = nullptr) {
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

std::vector<float> floats(const std::map<std::string, std::string>& tensors,
                          const std::string& name) {
  const std::string& bytes = tensors.at(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The largest difference of a weight between two checkpoints of one model.
float largest_difference(const fs::path& one, const fs::path& other) {
  const auto a = testing::tensors_of(one), b = testing::tensors_of(other);
  float largest = 0;
  for (const auto& [name, bytes] : a) {
    if (!name.starts_with("model.") && !name.starts_with("lm_head.")) continue;
    const std::vector<float> x = floats(a, name), y = floats(b, name);
    for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::fabs(x[i] - y[i]));
  }
  return largest;
}

Variant plain_that_folds() {
  Variant plain;
  plain.exact = false;
  plain.compress_owed = "fold";
  return plain;
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
      StepResult result;
      for (int i = first; i < end; ++i) EXPECT_TRUE((result = rank.step(i)).taken());
      const fs::path path = save_checkpoint(root(name), rank.state, position_of(end), {});
      if (number != 0) return;
      written = path;
      last_ = result;
    });
    return written;
  }

  StepResult last_;  // of the last step of go_on()
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
      EXPECT_EQ(sum_of_residual(now, after), sum_of_residual(old, before, &largest))
          << variant.name << " " << before << " to " << after;
      EXPECT_GT(largest, 0) << variant.name;
      // And they go on.
      go_on(variant, {after, shards ? 2 : 0}, now, 5, 7, "later");
    }
  }
}

bool is_of_signs(const Variant& way) {
  return way.compress == "onebit_adam" || way.compress == "zeroone_adam";
}

// However a run goes on, its weights move no further than they do in a run that stays with one of
// the two ways, or than steps of AdamW can: its momentum is at most 1.17 roots of its second moment
// (beta1 .9, beta2 .95). Ways of signs go by a second moment that no longer changes, and may go
// half as far again. Nor is the loss higher than that of the worse of the two. Nearly half of the
// tokens have not been seen when the way changes, so that second moments are 0 where ranks have a
// residual something: with the residual in the first moment weights moved by hundreds of learning
// rates.
TEST_F(CompressedCheckpoints, EveryWayBeginsFromEveryOtherAndStaysNearIt) {
  Variant plain;
  plain.exact = false;
  const std::vector<std::pair<Variant, Layout>> all = {{plain, {2, 1}},
                                                       {compressed("int8"), {2, 3}},
                                                       {compressed("int4"), {2, 0}},
                                                       {compressed("int4", "int4"), {3, 1}},
                                                       {compressed("powersgd"), {2, 0}},
                                                       {onebit(2), {3, 1}},
                                                       {zeroone(2, 2), {2, 0}}};
  constexpr int kSteps = 4;
  constexpr double kMost = kSteps * 0.01 * 1.17;
  std::vector<double> moved, losses;  // in runs that stay
  for (const auto& [way, layout] : all) {
    const fs::path begun = go_on(way, layout, {}, 0, 4, "begun");
    const fs::path stayed = go_on(way, layout, begun, 4, 4 + kSteps, "stayed");
    moved.push_back(largest_difference(stayed, begun));
    losses.push_back(last_.loss);
  }
  for (std::size_t f = 0; f < all.size(); ++f) {
    const fs::path begun = go_on(all[f].first, all[f].second, {}, 0, 4, "begun");
    for (std::size_t t = 0; t < all.size(); ++t) {
      Variant folds = all[t].first;
      folds.compress_owed = "fold";
      const fs::path ended = go_on(folds, all[t].second, begun, 4, 4 + kSteps, "ended");
      const std::string what = all[f].first.name + " to " + folds.name;
      EXPECT_EQ(read_position(ended).residual.codec,
                folds.compress == "none" ? "" : folds.compress);
      if (folds.compress == "onebit_adam" && all[f].first.compress != folds.compress) {
        EXPECT_EQ(read_position(ended).residual.second_updates, 4) << what;
      }
      const double factor = is_of_signs(all[f].first) || is_of_signs(folds) ? 1.5 : 1;
      EXPECT_LE(largest_difference(ended, begun), factor * std::max({kMost, moved[f], moved[t]}))
          << what;
      EXPECT_LE(last_.loss, std::max(losses[f], losses[t]) + 0.1) << what;
    }
  }
}

const std::string kName = "model.layers.0.mlp.up_proj.weight";

// What codes did not say is part of the next step's gradient, before it is clipped, once.
TEST_F(CompressedCheckpoints, TheResidualOfGradientsIsAddedToTheNextOne) {
  const fs::path old = go_on(compressed("int4"), {2, 0}, {}, 0, 4, "old");
  for (const auto& [to, layout] :
       {std::pair(plain_that_folds(), Layout{2, 0}), std::pair(plain_that_folds(), Layout{3, 2}),
        std::pair(plain_that_folds(), Layout{2, 3})}) {
    const auto before = testing::tensors_of(old);
    double with = 0, without = 0;  // factors that gradients were clipped with
    std::map<std::string, std::string> paid, dropped;
    for (const bool drops : {false, true}) {
      on_ranks(to, layout, [&](RankOf& rank, int number) {
        load_checkpoint(ckpt::verify_checkpoint(old), rank.state, rank.threads());
        EXPECT_FALSE(rank.state.residual_gradient().is_empty());
        if (drops) rank.state.residual_gradient().drop();
        const double norm = rank.step(4).grad_norm;
        EXPECT_TRUE(rank.state.residual_gradient().is_empty());
        const fs::path path = save_checkpoint(root("now"), rank.state, position_of(5), {});
        if (number != 0) return;
        (drops ? without : with) = std::min(1.0, 1 / norm);
        (drops ? dropped : paid) = testing::tensors_of(path);
      });
    }
    const std::vector<float> a = floats(before, "owed.0." + kName);
    const std::vector<float> b = floats(before, "owed.1." + kName);
    const std::vector<float> m0 = floats(before, "exp_avg." + kName);
    const std::vector<float> m1 = floats(dropped, "exp_avg." + kName);
    const std::vector<float> m2 = floats(paid, "exp_avg." + kName);
    double largest = 0;
    for (std::size_t i = 0; i < m0.size(); ++i) {
      const double gradient = (m1[i] - 0.9 * m0[i]) / (0.1 * without);
      EXPECT_NEAR(m2[i], 0.9 * m0[i] + 0.1 * with * (gradient + a[i] + b[i]), 1e-6) << i;
      largest = std::max(largest, std::fabs(m2[i] - m1[i]) + 0.0);
    }
    EXPECT_GT(largest, 1e-5);
    EXPECT_FALSE(paid.contains("owed.0." + kName));
    EXPECT_FALSE(paid.contains("owed_gradient." + kName));
  }
}

// Between reading a checkpoint and its next step a run may be saved, as other ranks, too.
TEST_F(CompressedCheckpoints, AResidualGradientOutlivesACheckpointWithoutAStep) {
  const fs::path old = go_on(compressed("int8"), {2, 1}, {}, 0, 4, "old");
  const fs::path direct = go_on(plain_that_folds(), {2, 2}, old, 4, 6, "direct");
  const fs::path between = go_on(plain_that_folds(), {3, 3}, old, 4, 4, "between");
  const auto residual = testing::tensors_of(old);
  const std::vector<float> a = floats(residual, "owed.0." + kName),
                           b = floats(residual, "owed.1." + kName);
  const std::vector<float> sum = floats(testing::tensors_of(between), "owed_gradient." + kName);
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], a[i] + b[i]) << i;
  Variant keeps = plain_that_folds();
  keeps.compress_owed = "keep";
  const fs::path later = go_on(keeps, {2, 2}, between, 4, 6, "later");
  EXPECT_TRUE(testing::tensors_of(later) == testing::tensors_of(direct));
}

// Signs pay an element in units of its second moment. Where that is next to nothing the residual
// may be any multiple of it, which AdamW would take in one step.
TEST_F(CompressedCheckpoints, TheResidualOfMomentaIsNoMoreThanAMomentumCanBe) {
  for (const Variant& variant : {onebit(2), zeroone(2, 2)}) {
    fs::path old;
    on_ranks(variant, {2, 0}, [&](RankOf& rank, int number) {
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(rank.step(i).taken());
      for (const optim::StateTensor& piece : rank.state.optimizer().state()) {
        const bool is_second = piece.name == "exp_avg_sq";
        if (!is_second && piece.name != "exp_avg" && !piece.name.starts_with("owed.")) continue;
        const float value = is_second ? 1e-24F : piece.name == "exp_avg" ? 0.0F : 1e-2F;
        for (int i = 0; i < 100; ++i) piece.tensor.data<float>()[i] = value;
      }
      const fs::path path = save_checkpoint(root("old"), rank.state, position_of(4), {});
      if (number == 0) old = path;
    });
    const fs::path now = go_on(plain_that_folds(), {2, 0}, old, 4, 4, "now");
    const fs::path next = go_on(plain_that_folds(), {2, 0}, old, 4, 5, "next");
    // The elements that were set are the first of the embedding.
    const std::string name = "model.embed_tokens.weight";
    const std::vector<float> was = floats(testing::tensors_of(now), name);
    const std::vector<float> is = floats(testing::tensors_of(next), name);
    for (std::size_t i = 0; i < 100; ++i) {
      EXPECT_LT(std::abs(is[i] - was[i]), 0.012) << variant.name << " " << i;
    }
  }
}

// A second moment of 2 updates is to AdamW, which takes it for one of 4, what it would be of 4.
// The residual of a mean over 2 local steps counts twice.
TEST_F(CompressedCheckpoints, FoldingGivesAdamWMomentsOfItsOwnScale) {
  const std::string name = kName;
  for (const auto& [variant, updates, steps] :
       {std::tuple(onebit(2), 2, 1.0), std::tuple(zeroone(2, 2), 2, 2.0)}) {
    const fs::path old = go_on(variant, {2, 0}, {}, 0, 4, "old");
    EXPECT_EQ(read_position(old).residual.second_updates, updates);
    const auto before = testing::tensors_of(old);
    const auto after = testing::tensors_of(go_on(plain_that_folds(), {2, 0}, old, 4, 4, "now"));
    const std::vector<float> v0 = floats(before, "exp_avg_sq." + name);
    const std::vector<float> v1 = floats(after, "exp_avg_sq." + name);
    const std::vector<float> m0 = floats(before, "exp_avg." + name);
    const std::vector<float> m1 = floats(after, "exp_avg." + name);
    const std::vector<float> a = floats(before, "owed.0." + name);
    const std::vector<float> b = floats(before, "owed.1." + name);
    const std::vector<float> sum = floats(before, "owed_sum." + name);
    // The most that a momentum of four steps can be, by the inequality of Cauchy and Schwarz.
    const double ratio = 0.9 * 0.9 / 0.95;
    const double most_per_root =
        0.1 * std::sqrt((1 + ratio + ratio * ratio + ratio * ratio * ratio) / 0.05);
    const float factor =
        static_cast<float>((1 - std::pow(0.95, 4)) / (1 - std::pow(0.95, updates)));
    for (std::size_t i = 0; i < v0.size(); ++i) {
      EXPECT_NEAR(v1[i], factor * v0[i], 1e-6F * v1[i]) << variant.name << " " << i;
      const double most = std::max<double>(std::fabs(m0[i]), most_per_root * std::sqrt(v1[i]));
      const double all = m0[i] + steps * ((a[i] + b[i]) / 2 + sum[i]);
      EXPECT_NEAR(m1[i], std::clamp(all, -most, most), 1e-6 * most + 1e-8) << variant.name;
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
                  AllOf(HasSubstr("step-00000002: 2 ranks have residuals of "
                                  "dp.compress = int4, and this run has "),
                        HasSubstr("--dp.compress_owed=fold"), ::testing::Not(HasSubstr("\n"))));
    }
  }
}

}  // namespace
}  // namespace atl::train
