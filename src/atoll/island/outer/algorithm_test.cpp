#include "atoll/island/outer/algorithm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "atoll/base/error.h"
#include "atoll/base/rng.h"
#include "atoll/island/outer/fragments.h"

namespace atl::island {
namespace {

constexpr std::size_t kN = 60;

OuterOptions options(const std::string& algorithm, std::int64_t inner_steps,
                     const OuterOptimizerOptions& optimizer) {
  OuterOptions result;
  result.algorithm = algorithm;
  result.inner_steps = inner_steps;
  result.optimizer = optimizer;
  return result;
}
const OuterOptimizerOptions kPlain = {.kind = "sgd", .lr = 1, .momentum = 0};
const OuterOptimizerOptions kNesterov = {.kind = "nesterov", .lr = 0.5, .momentum = 0.75};

float random(std::uint64_t seed, std::size_t i) {
  return to_uniform(RngStream(seed, RngPurpose::kSynthetic).word(i)) - 0.5F;
}

// The gradient of island m's own bowl; islands that are alike share `data`.
float gradient(int data, std::size_t i, float w) {
  const float curvature = 0.2F + static_cast<float>(i % 7);
  return curvature * (w - random(100 + static_cast<std::uint64_t>(data), i));
}

// Six layers of ten elements in one flat vector.
std::vector<FlatParam> layers() {
  std::vector<FlatParam> params;
  for (int layer = 0; layer < 6; ++layer) params.push_back({"w", 10 * layer, 10, layer});
  return params;
}

// Islands that train their bowls and meet as algorithm.h tells it.
class OuterRun {
 public:
  OuterRun(const OuterOptions& options, std::vector<int> data)
      : optimizer_(make_outer_optimizer(options.optimizer)),
        algorithm_(make_outer_algorithm(options, *optimizer_)),
        fragments_(make_fragments(layers(), options.fragments)),
        data_(std::move(data)) {
    std::vector<float> start(kN);
    for (std::size_t i = 0; i < kN; ++i) start[i] = random(1, i);
    params_.assign(data_.size(), start);
    const auto vectors = static_cast<std::size_t>(optimizer_->num_state_vectors());
    for (const Fragment& fragment : fragments_) {
      anchors_.push_back(packed(fragment, start));
      states_.emplace_back(anchors_.back().size() * vectors, 0.0F);
    }
    const auto kept = static_cast<std::size_t>(algorithm_->num_kept_vectors());
    kept_.assign(data_.size(), std::vector<float>(kept * kN, 0.0F));
    for (std::size_t m = 0; m < data_.size(); ++m) {
      for (std::size_t p = 0; p < fragments_.size(); ++p) {
        with(m, p, [&](const OwnFragment& own) { algorithm_->reset(anchors_[p], own); });
      }
    }
  }

  void train(std::int64_t inner_steps) {
    for (std::int64_t i = 0; i < inner_steps; ++i) {
      ++taken_;
      for (std::size_t m = 0; m < data_.size(); ++m) inner_step(params_[m], data_[m]);
      if (begun_ > applied_ && taken_ == algorithm_->applies_at(applied_)) apply();
      if (taken_ == algorithm_->begins_at(begun_)) begin();
      if (begun_ > applied_ && taken_ == algorithm_->applies_at(applied_)) apply();
    }
  }

  const std::vector<float>& params(std::size_t m) const { return params_[m]; }
  const std::vector<float>& anchor(std::size_t p = 0) const { return anchors_[p]; }

  static void inner_step(std::vector<float>& params, int data) {
    for (std::size_t i = 0; i < kN; ++i) params[i] -= 0.03F * gradient(data, i, params[i]);
  }

 private:
  static std::vector<float> packed(const Fragment& fragment, const std::vector<float>& flat) {
    std::vector<float> result(static_cast<std::size_t>(fragment.elements()));
    pack(fragment, flat, result);
    return result;
  }

  void with(std::size_t m, std::size_t p, const std::function<void(const OwnFragment&)>& fn) {
    std::vector<float> own = packed(fragments_[p], params_[m]);
    fn({own, kept_[m]});
    unpack(fragments_[p], own, params_[m]);
  }

  std::size_t fragment(std::int64_t outer_step) const {
    return static_cast<std::size_t>(algorithm_->fragment_of(outer_step));
  }

  void begin() {
    const std::size_t p = fragment(begun_++);
    const std::vector<float>& anchor = anchors_[p];
    const auto share = 1 / static_cast<double>(data_.size());
    std::vector<float> mean(anchor.size(), 0.0F);
    std::vector<float> delta(anchor.size());
    for (std::size_t m = 0; m < data_.size(); ++m) {
      with(m, p, [&](const OwnFragment& own) { algorithm_->begin(anchor, own, share, delta); });
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<float>(share) * delta[i];
    }
    next_anchor_ = anchor;
    next_state_ = states_[p];
    optimizer_->step(anchor, mean, states_[p], next_anchor_, next_state_,
                     {.k = (begun_ - 1) / static_cast<std::int64_t>(fragments_.size())});
  }

  void apply() {
    const std::size_t p = fragment(applied_++);
    anchors_[p] = next_anchor_;
    states_[p] = next_state_;
    for (std::size_t m = 0; m < data_.size(); ++m) {
      with(m, p, [&](const OwnFragment& own) { algorithm_->apply(anchors_[p], own); });
    }
  }

  std::unique_ptr<OuterOptimizer> optimizer_;
  std::unique_ptr<OuterAlgorithm> algorithm_;
  std::vector<Fragment> fragments_;
  std::vector<int> data_;
  std::vector<std::vector<float>> params_;  // by island
  std::vector<std::vector<float>> kept_;    // by island; fragments > 1 keep nothing
  std::vector<std::vector<float>> anchors_;
  std::vector<std::vector<float>> states_;
  std::vector<float> next_anchor_;
  std::vector<float> next_state_;
  std::int64_t taken_ = 0;
  std::int64_t begun_ = 0;
  std::int64_t applied_ = 0;
};

TEST(OuterAlgorithm, OneIslandWithPlainStepsIsPlainTraining) {
  OuterRun islands(options("diloco", 1, kPlain), {7});
  std::vector<float> alone = islands.params(0);
  constexpr int kSteps = 50;
  for (int i = 0; i < kSteps; ++i) OuterRun::inner_step(alone, 7);
  islands.train(kSteps);
  // Each outer step rounds twice, numbers below 1; the bowls only shrink differences.
  for (std::size_t i = 0; i < kN; ++i) {
    EXPECT_NEAR(islands.params(0)[i], alone[i], kSteps * 2 * 0x1p-24) << i;
  }
}

TEST(OuterAlgorithm, IslandsThatAreAlikeAreOneIsland) {
  for (const char* algorithm : {"diloco", "streaming"}) {
    OuterRun one(options(algorithm, 5, kNesterov), {3});
    OuterRun four(options(algorithm, 5, kNesterov), {3, 3, 3, 3});
    one.train(23);
    four.train(23);
    // Quarters add up exactly.
    for (std::size_t m = 0; m < 4; ++m) EXPECT_EQ(four.params(m), one.params(0)) << algorithm;
  }
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

TEST(OuterAlgorithm, StreamingOfOneFragmentWithoutOverlapIsDiLoCo) {
  OuterRun diloco(options("diloco", 4, kNesterov), {1, 2, 3});
  OuterRun streaming(options("streaming", 4, kNesterov), {1, 2, 3});
  for (int i = 0; i < 19; ++i) {
    diloco.train(1);
    streaming.train(1);
    for (std::size_t m = 0; m < 3; ++m) {
      ASSERT_EQ(bits_of(diloco.params(m)), bits_of(streaming.params(m))) << i;
    }
  }
}

TEST(OuterAlgorithm, StreamingTakesFragmentsInTurn) {
  OuterOptions settings = options("streaming", 12, kPlain);
  settings.fragments = 3;
  settings.overlap = 2;
  settings.merge = 0.5;
  const auto optimizer = make_outer_optimizer(settings.optimizer);
  const auto algorithm = make_outer_algorithm(settings, *optimizer);
  EXPECT_EQ(algorithm->interval(), 4);
  EXPECT_EQ(algorithm->fragment_of(0), 0);
  EXPECT_EQ(algorithm->fragment_of(5), 2);
  EXPECT_EQ(algorithm->begins_at(0), 4);
  EXPECT_EQ(algorithm->applies_at(0), 6);
  EXPECT_EQ(algorithm->begins_at(4), 20);

  std::vector<float> params = {1, 2, 3};
  algorithm->apply(std::vector<float>{3, 3, 3}, {params, {}});
  EXPECT_EQ(params, (std::vector<float>{2, 2.5F, 3}));

  // Islands meet in each fragment: with nothing of their own kept, they agree where they just met.
  settings.merge = 0;
  OuterRun islands(settings, {1, 2});
  islands.train(6);
  for (const std::size_t i : {0, 9, 30, 39})
    EXPECT_EQ(islands.params(0)[i], islands.anchor(0)[i % 20]);
  EXPECT_EQ(islands.params(0)[35], islands.params(1)[35]);
  EXPECT_NE(islands.params(0)[15], islands.params(1)[15]);
  islands.train(4);
  EXPECT_EQ(islands.params(0)[15], islands.params(1)[15]);
  EXPECT_NE(islands.params(0)[35], islands.params(1)[35]);
}

// Two islands whose inner steps are always -1 and -3 per round; by the paper's formula,
// own / 2 + (mean before - own before / 2), each with an outer optimizer of its own.
TEST(OuterAlgorithm, EagerIsThePapersTwoRoundsByHand) {
  const OuterOptimizerOptions nesterov = {.kind = "nesterov", .lr = 1, .momentum = 0.5};
  const auto optimizer = make_outer_optimizer(nesterov);
  const auto algorithm = make_outer_algorithm(options("eager", 10, nesterov), *optimizer);
  EXPECT_EQ(algorithm->apply_after(), 10);
  std::vector<float> anchor = {0};
  std::vector<float> state = {0};
  const double pull[] = {1, 3};
  std::vector<float> params[] = {{0}, {0}};
  std::vector<float> kept[] = {{9, 9}, {9, 9}};
  for (int m = 0; m < 2; ++m) algorithm->reset(anchor, {params[m], kept[m]});

  const auto round = [&] {
    std::vector<float> mean = {0};
    for (int m = 0; m < 2; ++m) {
      params[m][0] -= static_cast<float>(pull[m]);
      std::vector<float> delta(1);
      algorithm->begin(anchor, {params[m], kept[m]}, 0.5, delta);
      EXPECT_EQ(delta[0], pull[m]);
      mean[0] += 0.5F * delta[0];
    }
    return mean;
  };
  // Round 1: the own half alone. Island 1: 1/2; v = 1/2; 0 - (1/2 + 1/4).
  const std::vector<float> mean = round();
  EXPECT_EQ(params[0][0], -0.75F);
  EXPECT_EQ(params[1][0], -2.25F);
  optimizer->step(anchor, mean, state, anchor, state, {});  // 0 - (2 + 1)
  for (int m = 0; m < 2; ++m) algorithm->apply(anchor, {params[m], kept[m]});
  // Round 2. Island 1: 1/2 + (2 - 1/2) = 2; v = 1/4 + 2; -0.75 - (2 + 1.125).
  // Island 2: 3/2 + (2 - 3/2) = 2; v = 3/4 + 2; -2.25 - (2 + 1.375).
  round();
  EXPECT_EQ(params[0][0], -3.875F);
  EXPECT_EQ(params[1][0], -5.625F);
}

// Many rounds of the paper's way, in double: an outer optimizer on each island.
std::vector<std::vector<double>> eager_in_double(const std::vector<int>& data,
                                                 const std::vector<double>& start, int rounds,
                                                 int steps) {
  const double share = 1 / static_cast<double>(data.size());
  const std::size_t islands = data.size();
  std::vector<std::vector<double>> theta(islands, start);
  std::vector<std::vector<double>> v(islands, std::vector<double>(kN, 0.0));
  std::vector<std::vector<double>> delta = v;
  std::vector<double> mean(kN, 0.0);
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> next_mean(kN, 0.0);
    for (std::size_t m = 0; m < islands; ++m) {
      for (std::size_t i = 0; i < kN; ++i) {
        double w = theta[m][i];
        const double target = random(100 + static_cast<std::uint64_t>(data[m]), i);
        const double curvature = 0.2 + static_cast<double>(i % 7);
        for (int step = 0; step < steps; ++step) w -= 0.03 * curvature * (w - target);
        const double fresh = theta[m][i] - w;
        const double mixed = share * fresh + (mean[i] - share * delta[m][i]);
        v[m][i] = kNesterov.momentum * v[m][i] + mixed;
        theta[m][i] -= kNesterov.lr * (mixed + kNesterov.momentum * v[m][i]);
        delta[m][i] = fresh;
        next_mean[i] += share * fresh;
      }
    }
    mean = next_mean;
  }
  return theta;
}

TEST(OuterAlgorithm, EagerIsAnOuterOptimizerOnEachIsland) {
  const std::vector<int> data = {1, 2, 3};
  OuterRun islands(options("eager", 4, kNesterov), data);
  const std::vector<float> start = islands.params(0);
  constexpr int kRounds = 9;
  islands.train(4 * kRounds);
  const auto right = eager_in_double(data, {start.begin(), start.end()}, kRounds, 4);
  for (std::size_t m = 0; m < data.size(); ++m) {
    for (std::size_t i = 0; i < kN; ++i) {
      // Some 15 roundings a round, of numbers below 4; momentum 3/4 repeats each up to 4 times.
      ASSERT_NEAR(islands.params(m)[i], right[m][i], kRounds * 15 * 4 * 4 * 0x1p-24)
          << m << " " << i;
    }
  }
}

TEST(OuterAlgorithm, RebaseKeepsWhatTheIslandHasDone) {
  for (const char* name : {"diloco", "streaming"}) {
    const auto optimizer = make_outer_optimizer(kNesterov);
    const auto algorithm = make_outer_algorithm(options(name, 8, kNesterov), *optimizer);
    std::vector<float> params = {1, -2};
    const OwnFragment own{params, {}};
    const std::vector<float> anchor = {1.5F, -4};
    const std::vector<float> moved = {0.5F, -3};
    std::vector<float> delta(2);
    algorithm->begin(anchor, own, 0.5, delta);
    EXPECT_EQ(delta, (std::vector<float>{0.5F, -2}));
    params[0] -= 0.25F;  // it trains on
    algorithm->rebase(anchor, moved, delta, 0.5, own);
    algorithm->begin(moved, own, 0.5, delta);
    EXPECT_EQ(delta, (std::vector<float>{0.75F, -2})) << name;
  }
}

TEST(OuterAlgorithm, EagerSendsADroppedDeltaAgain) {
  const auto optimizer = make_outer_optimizer(kNesterov);
  const auto algorithm = make_outer_algorithm(options("eager", 8, kNesterov), *optimizer);
  const std::vector<float> anchor = {1, 2};
  std::vector<float> params(2);
  std::vector<float> kept(4);
  const OwnFragment own{params, kept};
  algorithm->reset(anchor, own);
  std::vector<float> delta(2);
  params[0] -= 0.5F;
  algorithm->begin(anchor, own, 0.5, delta);
  EXPECT_EQ(delta, (std::vector<float>{0.5F, 0}));
  // Others moved the anchor without it.
  const std::vector<float> moved = {3, 3};
  algorithm->rebase(anchor, moved, delta, 0.5, own);
  algorithm->rebase(anchor, moved, {}, 0.5, own);  // nothing was sent: nothing to send again
  params[0] -= 0.25F;
  params[1] -= 1;
  algorithm->begin(moved, own, 0.5, delta);
  EXPECT_EQ(delta, (std::vector<float>{0.75F, 1}));
  // As if the first begin had never been: v = share * delta, and a step of .5 by (1 + .75) of it.
  EXPECT_EQ(params, (std::vector<float>{3 - 0.5F * 1.75F * 0.375F, 3 - 0.5F * 1.75F * 0.5F}));
}

TEST(OuterAlgorithm, DefaultsAreThePapers) {
  EXPECT_EQ(default_outer_options(1).optimizer.lr, 0.4);
  EXPECT_EQ(default_outer_options(2).optimizer.lr, 0.6);
  EXPECT_EQ(default_outer_options(5).optimizer.lr, 0.6);
  EXPECT_EQ(default_outer_options(8).optimizer.lr, 0.8);
  EXPECT_EQ(default_outer_options(64).optimizer.lr, 0.8);
  EXPECT_EQ(default_outer_options(4).optimizer.kind, "nesterov");
  EXPECT_EQ(default_outer_options(4).optimizer.momentum, 0.9);
  EXPECT_EQ(default_outer_options(4).inner_steps, 30);
  const OuterOptions sparse = default_outer_options(4, "diloco", 12, "topk:32/4096");
  EXPECT_EQ(sparse.optimizer.kind, "sgd");
  EXPECT_EQ(sparse.optimizer.momentum, 0);
  EXPECT_EQ(default_outer_options(4, "streaming", 12).fragments, 3);  // 4 do not divide 30
  EXPECT_EQ(default_outer_options(4, "streaming", 2).fragments, 1);
  for (const char* algorithm : {"diloco", "streaming", "eager", "gossip"}) {
    for (const int num_layers : {0, 6, 24, 100}) {
      const OuterOptions chosen = default_outer_options(3, algorithm, num_layers);
      const auto optimizer = make_outer_optimizer(chosen.optimizer);
      EXPECT_EQ(make_outer_algorithm(chosen, *optimizer)->num_fragments(), chosen.fragments);
    }
  }
}

// Whatever others commit meanwhile, no progress of the island is lost or counted twice.
TEST(OuterAlgorithm, AnAsynchronousIslandTrainsOnAndLosesNothing) {
  const OuterOptimizerOptions kSgd = {.kind = "sgd", .lr = 1, .momentum = 0};
  const auto optimizer = make_outer_optimizer(kSgd);
  OuterOptions async = {.algorithm = "async", .inner_steps = 4, .optimizer = kSgd};
  const auto algorithm = make_outer_algorithm(async, *optimizer);
  EXPECT_EQ(algorithm->apply_after(), 4);
  std::vector<float> anchor = {10};
  std::vector<float> params(1);
  std::vector<float> kept(1);
  const OwnFragment own = {params, kept};
  algorithm->reset(anchor, own);
  params[0] -= 1;  // trains
  std::vector<float> delta(1);
  algorithm->begin(anchor, own, 0.5, delta);
  EXPECT_EQ(delta[0], 1);
  params[0] -= 2;  // trains on
  // Its own step moves the anchor by half of the delta: what it trained since stays on top.
  std::vector<float> next = {9.5};
  algorithm->apply(next, own);
  EXPECT_EQ(params[0], 7.5F);
  anchor = next;
  // A step of another island shifts both, and the next delta has all that is not in the anchor.
  next = {8};
  algorithm->rebase(anchor, next, {}, 0.5, own);
  algorithm->begin(next, own, 0.5, delta);
  EXPECT_EQ(delta[0], 2);
  // One that is dropped is in the one after it.
  params[0] -= 1;
  const std::vector<float> after = {7};
  algorithm->rebase(next, after, delta, 0.5, own);
  algorithm->begin(after, own, 0.5, delta);
  EXPECT_EQ(delta[0], 3);
  // A step of another island comes while the delta is under way: the step that has it then leaves
  // on top only what was trained since the hand-in.
  params[0] -= 2;
  const std::vector<float> others = {5};
  algorithm->rebase(after, others, delta, 0.5, own);
  const std::vector<float> with_own = {3.5};
  algorithm->apply(with_own, own);
  EXPECT_EQ(params[0], 1.5F);
}

TEST(OuterAlgorithm, WhatCannotBeHonouredIsAnError) {
  const auto message = [](const OuterOptions& wrong) {
    const auto optimizer = make_outer_optimizer(wrong.optimizer);
    try {
      make_outer_algorithm(wrong, *optimizer);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  using testing::HasSubstr;
  const auto with = [](const char* algorithm, const std::function<void(OuterOptions&)>& change) {
    OuterOptions wrong = options(algorithm, 12, kNesterov);
    change(wrong);
    return wrong;
  };
  EXPECT_THAT(message(with("rumour", [](auto&) {})),
              HasSubstr("diloco, streaming, eager, async or gossip"));
  EXPECT_THAT(message(with("gossip", [](auto& o) { o.codec = "int8"; })),
              HasSubstr("needs the codec f32"));
  EXPECT_THAT(message(with("diloco", [](auto& o) { o.inner_steps = 0; })), HasSubstr("at least 1"));
  for (const char* algorithm : {"diloco", "eager", "gossip"}) {
    for (const auto& change : std::vector<std::function<void(OuterOptions&)>>{
             [](auto& o) { o.fragments = 2; }, [](auto& o) { o.overlap = 1; },
             [](auto& o) { o.merge = 0.5; }}) {
      EXPECT_THAT(message(with(algorithm, change)), HasSubstr("need the algorithm streaming"));
    }
  }
  EXPECT_THAT(message(with("streaming", [](auto& o) { o.fragments = 5; })), HasSubstr("evenly"));
  EXPECT_THAT(message(with("streaming", [](auto& o) { o.fragments = 0; })), HasSubstr("evenly"));
  EXPECT_THAT(message(with("streaming", [](auto& o) { o.overlap = 13; })),
              HasSubstr("from 0 to 12"));
  EXPECT_THAT(message(with("streaming", [](auto& o) { o.merge = 1; })), HasSubstr("below 1"));
  EXPECT_THAT(message(with("eager", [](auto& o) { o.optimizer = {.kind = "adam"}; })),
              HasSubstr("sgd or nesterov"));
  EXPECT_THROW(default_outer_options(2, "rumour"), Error);
}

}  // namespace
}  // namespace atl::island
