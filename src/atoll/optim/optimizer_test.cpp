// Whole runs of the optimizers against other implementations (tools/golden/optim_oracle.py), in
// every way that parameters are kept.

#include "atoll/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "atoll/ops/testing.h"

namespace atl::optim {
namespace {

using test::OwnedTensor;
using test::TestRun;
using ::testing::HasSubstr;

#include "atoll/optim/optim_oracle.inc"

Shape flat_shape() {
  return {kOracleSize};
}

template <typename T>
T narrowed(double value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return to_bf16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
OwnedTensor<T> from_256ths(const double* numbers) {
  OwnedTensor<T> result(flat_shape());
  for (std::int64_t i = 0; i < kOracleSize; ++i) result[i] = narrowed<T>(numbers[i] / 256);
  return result;
}

// An optimizer with its memory, and parameters of element type T.
template <typename T>
class Bench {
 public:
  using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

  explicit Bench(const OptimizerOptions& options, int threads = 2,
                 std::span<const ParamRange> ranges = kOracleRanges, std::uint64_t seed = 1)
      : run(threads, 64),
        optimizer(make_optimizer(options, {dtype_of<T>(), flat_shape()}, ranges)),
        values(from_256ths<T>(kOracleStart[0])) {
    optimizer->request(plan);
    scratch_request = plan.request_forever("scratch", "scratch", optimizer->scratch_bytes());
    plan.place();
    arena = std::make_unique<Arena>(*run.device, plan);
    optimizer->bind(*arena);
    optimizer->init_masters(run, values);
    run.run.scratch = {arena->data(scratch_request), optimizer->scratch_bytes()};
    run.run.seed = seed;
  }

  void take(int step) {
    auto grads = from_256ths<Compute>(kOracleGradients[step - 1]);
    optimizer->update(run, {.lr = kOracleLr, .grad_scale = kOracleGradScale, .step = step}, values,
                      grads);
  }
  void take_all() {
    for (int step = 1; step <= kOracleSteps; ++step) take(step);
  }
  std::string state_bytes() const {
    std::string all;
    for (const StateTensor& piece : optimizer->state()) {
      all.append(static_cast<const char*>(piece.tensor.raw()), piece.tensor.bytes());
    }
    return all;
  }
  /// State of this name, where the flat vector has it; NaN elsewhere.
  OwnedTensor<Compute> state(const std::string& name) const {
    OwnedTensor<Compute> whole(flat_shape(), NAN);
    for (const StateTensor& piece : optimizer->state()) {
      if (piece.name != name) continue;
      std::copy_n(piece.tensor.template data<Compute>(), piece.tensor.num_elements(),
                  whole.values.data() + piece.begin);
    }
    return whole;
  }

  TestRun run;
  std::unique_ptr<Optimizer> optimizer;
  MemoryPlan plan;
  int scratch_request = -1;
  std::unique_ptr<Arena> arena;
  OwnedTensor<T> values;
};

OwnedTensor<double> oracle(std::size_t number) {
  OwnedTensor<double> ends(flat_shape());
  std::copy_n(kOracleEnds[number], kOracleSize, ends.values.begin());
  return ends;
}

class Oracle : public testing::TestWithParam<std::size_t> {
 protected:
  const OptimizerOptions& options() const { return kOracleOptions[GetParam()]; }
  bool muon() const { return options().kind == "muon"; }

  // What twelve steps may be off by, in units of eps, half the spacing of numbers in [1, 2).
  // Parameters stay below 2: a step rounds one by 1 eps, and the change, 0.02 of numbers below 4,
  // by ten roundings of 4 eps each: 1.8 eps. Muon's direction is off by more, by up to 485 times
  // (see muon_test.cpp) some ten roundings, times 0.02 and a scale of at most 1.5.
  double tolerance(double eps) const {
    return kOracleSteps * eps * (muon() ? 1.8 + 485 * 10 * kOracleLr * 1.5 : 1.8);
  }
};

TEST_P(Oracle, AgreesInDouble) {
  Bench<double> bench(options());
  bench.take_all();
  EXPECT_LE(test::max_abs_difference(bench.values, oracle(GetParam())), tolerance(0x1p-53));
}

TEST_P(Oracle, AgreesInF32) {
  Bench<float> bench(options());
  bench.take_all();
  EXPECT_LE(test::max_abs_difference(bench.values, oracle(GetParam())), tolerance(0x1p-24));
}

TEST_P(Oracle, MastersOfBf16WalkAsF32DoesAndTheValuesAreTheirNearest) {
  Bench<float> wide(options());
  Bench<Bf16> narrow(options());
  // The start is exact in bf16.
  wide.take_all();
  narrow.take_all();
  EXPECT_EQ(narrow.state("master"), wide.values);
  for (std::int64_t i = 0; i < kOracleSize; ++i) {
    EXPECT_EQ(narrow.values[i], to_bf16(wide.values[i])) << i;
  }
}

// Rounding up and down at random, means over seeds come to what f32 does, within what a first
// order in the rounding errors leaves: 12 steps, each off by at most 2^-8 with mean 0.
TEST_P(Oracle, StochasticRoundingFollowsOnAverage) {
  Bench<float> wide(options());
  wide.take_all();
  OptimizerOptions random = options();
  random.masters = Masters::kStochastic;
  constexpr int kSeeds = 200;
  OwnedTensor<double> mean(flat_shape());
  for (int seed = 0; seed < kSeeds; ++seed) {
    Bench<Bf16> narrow(random, 1, kOracleRanges, static_cast<std::uint64_t>(seed));
    narrow.take_all();
    EXPECT_THAT(narrow.optimizer->state(),
                testing::Each(testing::Field(&StateTensor::name, testing::Ne("master"))));
    for (std::int64_t i = 0; i < kOracleSize; ++i) {
      mean[i] += static_cast<double>(to_f32(narrow.values[i])) / kSeeds;
    }
  }
  // One rounding's error is at most 2^-7 wide for numbers below 2 and its deviation half of that.
  const double deviation = std::sqrt(kOracleSteps) * 0x1p-8 / std::sqrt(kSeeds);
  EXPECT_LE(test::max_abs_difference(mean, wide.values), 5 * deviation);
}

TEST_P(Oracle, ThreadCountChangesNoBit) {
  OptimizerOptions random = options();
  random.masters = Masters::kStochastic;
  Bench<float> wide(options(), 1);
  Bench<Bf16> narrow(random, 1);
  wide.take_all();
  narrow.take_all();
  for (const int threads : {2, 3}) {
    Bench<float> again(options(), threads);
    Bench<Bf16> narrow_again(random, threads);
    again.take_all();
    narrow_again.take_all();
    EXPECT_EQ(again.values, wide.values);
    EXPECT_EQ(again.state_bytes(), wide.state_bytes());
    EXPECT_EQ(narrow_again.values, narrow.values);
  }
}

TEST_P(Oracle, GoesOnFromItsStateBitForBit) {
  for (const Masters masters : {Masters::kF32, Masters::kStochastic}) {
    OptimizerOptions kept = options();
    kept.masters = masters;
    Bench<Bf16> whole(kept);
    whole.take_all();
    Bench<Bf16> first(kept);
    for (int step = 1; step <= 5; ++step) first.take(step);
    Bench<Bf16> second(kept);
    second.values = first.values;
    const auto from = first.optimizer->state();
    const auto to = second.optimizer->state();
    ASSERT_EQ(from.size(), to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(from[i].name, to[i].name);
      std::memcpy(to[i].tensor.raw(), from[i].tensor.raw(), from[i].tensor.bytes());
    }
    for (int step = 6; step <= kOracleSteps; ++step) second.take(step);
    EXPECT_EQ(second.values, whole.values);
    EXPECT_EQ(second.state_bytes(), whole.state_bytes());
  }
}

TEST_P(Oracle, WhatNoRangeCoversStaysAndHasNoState) {
  const std::vector<ParamRange> some = {kOracleRanges[0], kOracleRanges[3]};
  Bench<float> all(options());
  Bench<float> part(options(), 2, some);
  all.take_all();
  part.take_all();
  const auto start = from_256ths<float>(kOracleStart[0]);
  for (const ParamRange& range : kOracleRanges) {
    const bool covered = range.begin == some[0].begin || range.begin == some[1].begin;
    for (std::int64_t i = range.begin; i < range.begin + range.count; ++i) {
      EXPECT_EQ(part.values[i], covered ? all.values[i] : start[i]) << i;
    }
  }
  for (const StateTensor& piece : part.optimizer->state()) {
    EXPECT_TRUE(piece.begin == some[0].begin || piece.begin == some[1].begin) << piece.begin;
    EXPECT_LE(piece.tensor.num_elements(), some[0].count);
  }
}

TEST_P(Oracle, PaddingStaysZero) {
  Bench<float> bench(options());
  bench.take_all();
  for (const ParamRange& range : kOracleRanges) {
    if (!range.matrix) continue;
    for (std::int64_t i = range.rows * range.cols; i < range.count; ++i) {
      EXPECT_EQ(bench.values[range.begin + i], 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Oracle, testing::Range<std::size_t>(0, std::size(kOracleOptions)));

std::map<std::string, std::int64_t> state_sizes(const Optimizer& optimizer) {
  std::map<std::string, std::int64_t> sizes;
  for (const StateTensor& piece : optimizer.state()) {
    sizes[piece.name] += piece.tensor.num_elements();
  }
  return sizes;
}

OptimizerOptions plain_sgd() {
  return {.kind = "sgd", .values = {{"momentum", 0.0}, {"nesterov", false}}};
}

TEST(Optimizer, KeepsNoMoreStateThanItsRuleNeeds) {
  using Sizes = std::map<std::string, std::int64_t>;
  const ParamRange& last = kOracleRanges[std::size(kOracleRanges) - 1];
  const std::int64_t all = kOracleSize;
  const std::int64_t matrices = last.begin;
  const auto sizes = [](const OptimizerOptions& options) {
    return state_sizes(*Bench<float>(options).optimizer);
  };
  EXPECT_EQ(sizes({.kind = "adamw"}), (Sizes{{"exp_avg", all}, {"exp_avg_sq", all}}));
  EXPECT_EQ(sizes({.kind = "lion"}), (Sizes{{"exp_avg", all}}));
  EXPECT_EQ(sizes({.kind = "sgd"}), (Sizes{{"momentum_buffer", all}}));
  EXPECT_EQ(sizes(plain_sgd()), Sizes{});
  EXPECT_EQ(sizes({.kind = "muon"}), (Sizes{{"momentum_buffer", matrices},
                                            {"exp_avg", all - matrices},
                                            {"exp_avg_sq", all - matrices}}));
  const Bench<Bf16> narrow({.kind = "muon"});
  EXPECT_EQ(state_sizes(*narrow.optimizer)["master"], all);
  EXPECT_EQ(narrow.plan.peak_bytes("optimizer"),
            sizeof(float) * static_cast<std::size_t>(2 * all + (all - matrices)));
}

TEST(Optimizer, RangesThatTouchShareAPieceOfState) {
  EXPECT_EQ(Bench<float>({}).optimizer->state().size(), 2U) << "one piece of each moment";
  const std::vector<ParamRange> apart = {kOracleRanges[0], kOracleRanges[1], kOracleRanges[3]};
  EXPECT_EQ(Bench<float>({}, 1, apart).optimizer->state().size(), 4U);
}

TEST(Optimizer, HowTheVectorIsCutIntoRangesChangesNoDraw) {
  const OptimizerOptions options = {
      .kind = "lion", .values = {{"weight_decay", 0.0}}, .masters = Masters::kStochastic};
  const std::vector<ParamRange> whole = {{0, kOracleSize, true}};
  const std::vector<ParamRange> cut = {
      {0, 5, true}, {5, 30, false}, {35, 1, true}, {36, kOracleSize - 36, false}};
  Bench<Bf16> one(options, 2, whole);
  Bench<Bf16> many(options, 2, cut);
  one.take_all();
  many.take_all();
  EXPECT_EQ(many.values, one.values);
}

TEST(Optimizer, ALongStepOfBf16IsNotLostWithMasters) {
  // 64 steps of 2^-14: each far below the spacing at 1, together half of it.
  constexpr ParamRange kRange[] = {{0, kOracleSize}};
  Bench<Bf16> bench(plain_sgd(), 2, kRange);
  bench.values = OwnedTensor<Bf16>(flat_shape(), to_bf16(1.0F));
  bench.optimizer->init_masters(bench.run, bench.values);
  OwnedTensor<float> grads(flat_shape(), 1.0F);
  for (int step = 1; step <= 64; ++step) {
    bench.optimizer->update(bench.run, {.lr = 0x1p-14, .step = step}, bench.values, grads);
  }
  EXPECT_EQ(bench.values, OwnedTensor<Bf16>(flat_shape(), to_bf16(1 - 0x1p-8F)));
}

std::string error_of(const OptimizerOptions& options, Dtype dtype = Dtype::kF32) {
  try {
    make_optimizer(options, {dtype, flat_shape()}, kOracleRanges);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "no error";
}

TEST(Optimizer, NamesOptionsThatCannotBeHonoured) {
  EXPECT_THAT(error_of({.values = {{"beta1", 1.0}}}), HasSubstr("optim.beta1 is 1"));
  EXPECT_THAT(error_of({.values = {{"beta2", NAN}}}), HasSubstr("optim.beta2"));
  EXPECT_THAT(error_of({.values = {{"eps", 0.0}}}), HasSubstr("optim.eps"));
  EXPECT_THAT(error_of({.values = {{"weight_decay", -1.0}}}), HasSubstr("optim.weight_decay"));
  EXPECT_THAT(error_of({.kind = "sgd", .values = {{"momentum", 1.5}}}),
              HasSubstr("optim.momentum"));
  EXPECT_THAT(error_of({.kind = "muon", .values = {{"muon_adamw_lr", INFINITY}}, .peak_lr = 1}),
              HasSubstr("optim.muon_adamw_lr"));
  EXPECT_THAT(error_of({.kind = "muon", .values = {{"muon_adamw_lr", 0.1}}}),
              HasSubstr("optim.lr"));
  EXPECT_THAT(error_of({.kind = "muon", .values = {{"muon_scale", "rms"}}}),
              HasSubstr("optim.muon_scale is \"rms\"; it must be one of match_rms, original"));
  EXPECT_THAT(error_of({.kind = "sgd", .values = {{"momentum", 0.0}}}),
              HasSubstr("optim.nesterov"));
  EXPECT_THAT(error_of({.kind = "sgd", .values = {{"eps", 1e-8}}}),
              HasSubstr("optim.eps is not for optim.kind sgd"));
  EXPECT_THAT(error_of({.masters = Masters::kStochastic}), HasSubstr("f32"));
  EXPECT_EQ(error_of({.masters = Masters::kStochastic}, Dtype::kBf16), "no error");
}

TEST(Optimizer, NamesItsKindsAndRefusesOthers) {
  EXPECT_THAT(error_of({.kind = "adam"}),
              HasSubstr("the optimizer is \"adam\"; it must be adamw, muon, lion or sgd"));
  EXPECT_EQ(masters("stochastic"), Masters::kStochastic);
  EXPECT_THROW(masters("bf16"), Error);
}

TEST(Optimizer, RefusesRangesThatOverlapOrLeaveTheVector) {
  const auto make = [](std::vector<ParamRange> ranges) {
    return make_optimizer({}, {Dtype::kF32, {32}}, ranges);
  };
  EXPECT_NO_THROW(make({{0, 16}, {16, 16}}));
  EXPECT_THROW(make({{0, 17}, {16, 16}}), Error);
  EXPECT_THROW(make({{16, 17}}), Error);
  EXPECT_THROW(make({{0, 16, true, true, 4, 5}}), Error) << "20 elements in 16";
  EXPECT_THROW(make({{0, 16, true, true, 0, 5}}), Error);
}

}  // namespace
}  // namespace atl::optim
