// Compressed data parallel: bits, bytes, and that it learns.

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <random>

#include "atoll/compress/codec.h"
#include "atoll/parallel/compress/code_pieces.h"
#include "atoll/parallel/compress/weight_differences.h"
#include "atoll/train/compressed_testing.h"

namespace atl::train {
namespace {

using testing::Compressed;
using testing::compressed;
using testing::Layout;
using testing::onebit;
using testing::RankOf;
using testing::Variant;
using testing::whole_values;
using testing::zeroone;

TEST_F(Compressed, EveryZeroStageGivesTheSameBits) {
  for (const char* how : {"int8", "int4"}) {
    for (const int ranks : {2, 3}) {
      const std::string expected = trained(compressed(how), {ranks, 0}, 3);
      for (const int zero : {1, 2, 3}) {
        EXPECT_TRUE(trained(compressed(how), {ranks, zero}, 3) == expected)
            << how << ", " << ranks << " ranks, ZeRO " << zero;
      }
      Variant plain;
      EXPECT_FALSE(trained(plain, {ranks, 0}, 3) == expected) << "nothing is compressed";
    }
  }
}

TEST_F(Compressed, WeightDifferencesGiveBothStagesTheSameBits) {
  for (const char* how : {"none", "int8", "int4"}) {
    const Variant variant = compressed(how, "int4");
    EXPECT_TRUE(trained(variant, {2, 1}, 4) == trained(variant, {2, 2}, 4)) << how;
  }
}

// What all compute with stays within the codec's step of the masters, however many steps are taken.
TEST_F(Compressed, PublishedValuesFollowMasters) {
  on_ranks(compressed("none", "int4"), {2, 1}, [&](RankOf& rank, int) {
    for (int i = 0; i < 12; ++i) rank.step(i);
    rank.state.store().settle();
    const float* published = rank.state.store().computed_with().data<float>();
    const float* masters = rank.state.store().values().data<float>();
    double largest = 0, moved = 0;
    for (const optim::ParamRange& range : rank.state.store().ranges()) {
      for (std::int64_t i = 0; i < range.count; ++i) {
        const double off = std::abs(static_cast<double>(masters[range.in_values() + i]) -
                                    static_cast<double>(published[range.begin + i]));
        largest = std::max(largest, off);
        moved += off > 0 ? 1 : 0;
      }
    }
    EXPECT_GT(moved, 1000);
    // A step of AdamW at lr .01 changes an element by .03 at most here; a code misses a 14th.
    EXPECT_LT(largest, 0.01);
  });
}

// Bytes that a rank sends in a step beside the gradient's norm, the mean over ranks.
double sent_per_step(const std::vector<std::uint64_t>& once,
                     const std::vector<std::uint64_t>& thrice) {
  double sent = 0;
  for (std::size_t r = 0; r < once.size(); ++r)
    sent += static_cast<double>(thrice[r] - once[r]) / 2;
  return sent / static_cast<double>(once.size());
}

class CompressedBytes : public Compressed {
 protected:
  double sent(const Variant& variant, const Layout& layout, int first = 0) {
    std::vector<std::uint64_t> once(static_cast<std::size_t>(layout.ranks()));
    std::vector<std::uint64_t> thrice = once;
    on_ranks(variant, layout, [&](RankOf& rank, int number) {
      const auto at = static_cast<std::size_t>(number);
      for (int i = 0; i < first + 3; ++i) {
        rank.step(i);
        rank.state.store().settle();
        if (i == first) once[at] = rank.state.shard_group()->traffic().sent;
      }
      thrice[at] = rank.state.shard_group()->traffic().sent;
    });
    return sent_per_step(once, thrice);
  }

  // Of the model of these tests.
  static double codes_of(const std::string& codec) {
    const auto model = nn::build_model(testing::model_of({}), {});
    const parallel::FlatLayout layout(*model, {});
    const auto made = compress::make_codec(codec);
    double bytes = 0;
    for (const parallel::BucketCodes& codes :
         parallel::code_pieces(layout, [&](std::int64_t n) { return made->max_bytes(n); })) {
      bytes += static_cast<double>(codes.bytes());
    }
    return bytes;
  }
  static double parameters() {
    const auto model = nn::build_model(testing::model_of({}), {});
    return static_cast<double>(parallel::FlatLayout(*model, {}).flat().shape.num_elements());
  }
};

TEST_F(CompressedBytes, AreTheFormulas) {
  const double elements = parameters();
  for (const int ranks : {2, 3}) {
    const double share = (ranks - 1.0) / ranks;
    // Beside what is said here: a number for each 8,192 elements, for the norm.
    const double slack = 8 * elements / 8192 + 400;
    for (const char* codec : {"int8", "int4"}) {
      const double codes = codes_of(codec);
      EXPECT_NEAR(codes / elements, codec == std::string("int8") ? 1.016 : 0.516, 0.01);
      EXPECT_NEAR(sent(compressed(codec), {ranks, 0}), share * (codes + 4 * elements), slack);
      EXPECT_NEAR(sent(compressed(codec), {ranks, 1}), share * (codes + 4 * elements), slack);
      EXPECT_NEAR(sent(compressed(codec), {ranks, 2}), share * (codes + 4 * elements), slack);
      EXPECT_NEAR(sent(compressed(codec, "int4"), {ranks, 2}), share * (codes + codes_of("int4")),
                  slack);
    }
    EXPECT_NEAR(sent(compressed("none", "int4"), {ranks, 1}),
                share * (4 * elements + codes_of("int4")), slack);
  }
}

// Bytes of a plan's group for each parameter.
TEST_F(CompressedBytes, OfPlannedMemoryAreTheFormulas) {
  const auto planned = [](const Variant& variant, const Layout& layout, const char* group) {
    const TrainState state(testing::options_of(variant, layout, 0));
    return static_cast<double>(state.memory().peak_bytes(group)) / parameters();
  };
  for (const int ranks : {2, 4}) {
    const double n = ranks;
    // A rank's part of a bucket, or of all pieces, is as near to even as blocks of 8,192 allow.
    const double slack = 0.4;
    for (const char* group : {"parameters", "gradients"}) {
      EXPECT_NEAR(planned(onebit(1), {ranks, 0}, group), 4, 0.01);
    }
    EXPECT_NEAR(planned(onebit(1), {ranks, 0}, "optimizer"), 8, 0.01);
    EXPECT_NEAR(planned(onebit(1), {ranks, 0}, "residual"), 4 + 4 / n, slack);
    EXPECT_NEAR(planned(onebit(1), {ranks, 0}, "codes"), 2.0 / 8, 0.1);
    EXPECT_NEAR(planned(onebit(1), {ranks, 1}, "parameters"), 4, 0.01);
    EXPECT_NEAR(planned(onebit(1), {ranks, 1}, "gradients"), 4, 0.01);
    EXPECT_NEAR(planned(onebit(1), {ranks, 1}, "optimizer"), 4 + 8 / n, slack);
    EXPECT_NEAR(planned(onebit(1), {ranks, 1}, "residual"), 4 + 4 / n, slack);
    EXPECT_NEAR(planned(zeroone(1), {ranks, 0}, "optimizer"), 12, 0.01);
    EXPECT_NEAR(planned(zeroone(1), {ranks, 0}, "residual"), 4 + 4 / n, slack);
    EXPECT_NEAR(planned(zeroone(1), {ranks, 0}, "codes"), 2.0 / 8, 0.1);
    for (const int zero : {0, 1, 2, 3}) {
      EXPECT_NEAR(planned(compressed("int8"), {ranks, zero}, "residual"), 4, 0.01);
      EXPECT_NEAR(planned(compressed("int8"), {ranks, zero}, "codes"), 2 * 1.016, slack);
    }
    EXPECT_NEAR(planned(compressed("int4", "int4"), {ranks, 1}, "parameters"), 4 + 4 / n, slack);
    EXPECT_NEAR(planned(compressed("int4", "int4"), {ranks, 1}, "codes"), 3 * 0.516, slack);
  }
}

TEST_F(CompressedBytes, OfOneBitAdamAreABitEachWay) {
  const double elements = parameters();
  for (const int ranks : {2, 3}) {
    const double share = (ranks - 1.0) / ranks;
    const double sketch = 2 * share * 4 * 8192;
    // A bit an element, and 4 bytes for each piece of 8,192 or less.
    const double payload = 2 * share * elements / 8;
    for (const int zero : {0, 1}) {
      const double all = sent(onebit(1), {ranks, zero}, /*first=*/2);
      EXPECT_GT(all - sketch, payload);
      EXPECT_NEAR(all - sketch, payload, 2 * share * 4 * 60 + 100) << "ZeRO " << zero;
      // While it warms up: all gradients.
      EXPECT_NEAR(sent(onebit(100), {ranks, zero}), 2 * share * 4 * elements,
                  8 * elements / 8192 + 400);
    }
  }
}

TEST_F(CompressedBytes, OfZeroOneAdamAreABitInSomeSteps) {
  const double elements = parameters();
  for (const int ranks : {2, 3}) {
    const double share = (ranks - 1.0) / ranks;
    const double sketch = 2 * share * 4 * 512;
    const double payload = 2 * share * elements / 8;
    const double slack = 2 * share * 4 * 60 + 100;
    // Updates of the second moment: steps 1 to 8, 9 (after one step), 11, ...: of 10 and 11 one.
    EXPECT_NEAR(2 * sent(zeroone(100), {ranks, 0}, /*first=*/8),
                2 * share * 4 * elements + payload + sketch, 8 * elements / 8192 + 400 + slack);
    // Two local steps, and an exchange with the second: one in the two that are counted.
    EXPECT_NEAR(2 * sent(zeroone(1, /*local_steps=*/2), {ranks, 0}, /*first=*/2),
                payload + 2 * sketch, slack);
  }
}

TEST_F(CompressedBytes, OfPowerSgdAreTheFactors) {
  const auto model = nn::build_model(testing::model_of({}), {});
  double factors = 0, plain = 0;
  const parallel::FlatLayout layout(*model, {});
  for (const optim::ParamRange& range : layout.ranges()) {
    if (range.matrix) {
      factors += 4.0 * static_cast<double>(range.rows + range.cols);  // rank 4
    } else {
      plain += static_cast<double>(range.count);
    }
  }
  for (const int ranks : {2, 3}) {
    const double share = (ranks - 1.0) / ranks;
    EXPECT_NEAR(sent(compressed("powersgd"), {ranks, 0}), 2 * share * 4 * (factors + plain), 500);
  }
}

// Warm-up is plain AdamW to the bit, and then ranks go on to agree.
TEST_F(Compressed, OneBitAdamBeginsAsAdam) {
  Variant plain;
  plain.exact = false;
  const std::string adam = trained(plain, {2, 0}, 4);
  EXPECT_TRUE(trained(onebit(4), {2, 0}, 4) == adam);
  EXPECT_FALSE(trained(onebit(3), {2, 0}, 4) == adam);
}

// The moments lie elsewhere, and the momentum is what all were sent.
TEST_F(Compressed, OneBitAdamHasTheSameBitsWhereMomentsAreShared) {
  for (const int ranks : {2, 3}) {
    EXPECT_TRUE(trained(onebit(2), {ranks, 1}, 6) == trained(onebit(2), {ranks, 0}, 6)) << ranks;
  }
}

// Root of the mean square of the differences of two runs' values.
double distance(const std::string& a, const std::string& b) {
  const std::size_t count = a.size() / sizeof(float);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data() + i * sizeof(float), sizeof(float));
    std::memcpy(&y, b.data() + i * sizeof(float), sizeof(float));
    sum += std::pow(static_cast<double>(x) - y, 2);
  }
  return std::sqrt(sum / static_cast<double>(count));
}

// Moves each weight by one unit in its last place, up or down; the same on all ranks.
void round_otherwise(RankOf& rank, int seed) {
  std::minstd_rand random(static_cast<unsigned>(seed));
  for (nn::Param* param : rank.state.store().params()) {
    float* values = param->value.data<float>();
    for (std::int64_t i = 0; i < param->value.num_elements(); ++i) {
      values[i] = std::nextafter(values[i], (random() & 64U) != 0 ? 1e9F : -1e9F);
    }
  }
}

// As long as each step updates the second moment it is AdamW, but for how sums are rounded. Adam
// divides by a gradient's own size, so where a gradient is near 0 its roundings decide how a weight
// moves, and how far two runs part by them is not the same on each CPU. So it is measured: AdamW
// beside AdamW from weights that differ in their last bit.
TEST_F(Compressed, ZeroOneAdamBeginsAsAdam) {
  Variant plain;
  plain.exact = false;
  const auto apart = [&](int steps) {
    return distance(trained(plain, {2, 0}, steps), trained(zeroone(500), {2, 0}, steps));
  };
  const std::string adam = trained(plain, {2, 0}, 8);
  double by_rounding = 0;
  for (int seed = 1; seed <= 4; ++seed) {
    by_rounding = std::max(by_rounding, distance(adam, trained(plain, {2, 0}, 8, [&](RankOf& rank) {
                                                   round_otherwise(rank, seed);
                                                 })));
  }
  EXPECT_LE(apart(8), by_rounding);
  EXPECT_GT(apart(10), 20 * by_rounding);  // the tenth step is of signs
}

// Between two exchanges ranks go their own ways; after one they have the same bits.
TEST_F(Compressed, RanksMeetAfterLocalSteps) {
  on_ranks(zeroone(2, /*local_steps=*/2), {2, 0}, [&](RankOf& rank, int) {
    for (int i = 0; i < 8; ++i) {
      rank.step(i);
      const bool alone = i >= 2 && i % 2 == 0;
      EXPECT_EQ(rank.state.is_together(), !alone) << i;
      EXPECT_EQ(replicas_that_differ(rank.state).empty(), !alone) << i;
    }
  });
}

// Losses of some steps on the same three batches, which can be learned by heart.
std::vector<double> losses_of(const Variant& variant, const Layout& layout, int steps = 30) {
  std::vector<double> losses;
  comm::run_threads(layout.ranks(), {.timeout_s = 60}, [&](comm::World& world) {
    RankOf rank(world, variant, layout);
    for (int i = 0; i < steps; ++i) {
      const StepResult result = rank.step(i, i % 3);
      EXPECT_TRUE(result.taken());
      if (world.rank() == 0) losses.push_back(result.loss);
    }
  });
  return losses;
}

double mean_of_last(const std::vector<double>& losses) {
  return (losses.end()[-1] + losses.end()[-2] + losses.end()[-3]) / 3;
}

TEST_F(Compressed, EveryWayLearns) {
  Variant plain;
  plain.exact = false;
  const std::vector<double> expected = losses_of(plain, {2, 0});
  const double learned = expected.front() - mean_of_last(expected);
  ASSERT_GT(learned, 0.5);
  const auto compare = [&](const Variant& variant, int zero, double most_lost) {
    const std::vector<double> losses = losses_of(variant, {2, zero});
    EXPECT_EQ(losses.front(), expected.front()) << variant.name;  // the model was the same
    EXPECT_GT(losses.front() - mean_of_last(losses), (1 - most_lost) * learned) << variant.name;
  };
  compare(compressed("int8"), 1, 0.02);
  compare(compressed("int4"), 1, 0.1);
  compare(compressed("int4", "int4"), 2, 0.1);
  compare(compressed("powersgd"), 0, 0.3);
  compare(onebit(6), 0, 0.3);
  compare(onebit(6), 1, 0.3);
  compare(zeroone(6, 4), 0, 0.3);
}

// Where gradients are not noise, what is lost is missed: halfway to knowing its batches by heart,
// at steps 25 to 30, a run whose directions are not fed back has 1.7 to 2 times the loss. Later the
// loss is so small that roundings decide it, which are not the same on each CPU. (What int4 loses
// is less than this model's own noise: compress/feedback_test.cpp has it in numbers.)
TEST_F(Compressed, WithoutFeedbackLessIsLearned) {
  Variant forgets = compressed("powersgd");
  forgets.compress_feedback = false;
  const auto mean_of_last_six = [](const std::vector<double>& losses) {
    return std::accumulate(losses.end() - 6, losses.end(), 0.0) / 6;
  };
  const double with = mean_of_last_six(losses_of(compressed("powersgd"), {2, 0}, 30));
  const double without = mean_of_last_six(losses_of(forgets, {2, 0}, 30));
  EXPECT_GT(without, 1.4 * with);
}

// What one rank cannot send is known to all, and poisons nothing.
TEST_F(Compressed, AStepThatIsNotFiniteChangesNoValue) {
  for (const auto& [variant, zero] :
       {std::pair(compressed("int8"), 2), std::pair(compressed("int4", "int4"), 1),
        std::pair(compressed("powersgd"), 0), std::pair(onebit(2), 0), std::pair(onebit(2), 1),
        std::pair(zeroone(2, 2), 0)}) {
    on_ranks(variant, {2, zero}, [&, name = variant.name](RankOf& rank, int number) {
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(rank.step(i).taken());
      const std::string before = whole_values(rank);
      float& weight = rank.state.store().params()[1]->value.data<float>()[7];
      const float was = weight;
      if (number == 0) weight = std::nanf("");
      EXPECT_FALSE(rank.step(4).taken()) << name;
      if (number == 0) weight = was;
      EXPECT_TRUE(whole_values(rank) == before) << name;
      for (const auto& piece : parallel::held_pieces(rank.state.store(), &rank.state.optimizer())) {
        for (std::int64_t i = 0; i < piece.tensor.num_elements(); ++i) {
          ASSERT_TRUE(std::isfinite(piece.tensor.data<float>()[i])) << name << " " << piece.name;
        }
      }
      EXPECT_TRUE(rank.step(4).taken()) << name;
    });
  }
}

// The clipping of 1-bit Adam goes by a norm that is measured in a sketch.
TEST_F(Compressed, ASketchHasTheNormOfTheSum) {
  std::mutex mutex;
  std::vector<double> norms(2);
  Variant plain;
  plain.exact = false;
  int which = 0;
  for (const Variant& variant : {plain, onebit(1)}) {
    on_ranks(variant, {2, 0}, [&](RankOf& rank, int number) {
      rank.step(0);
      const double norm = rank.step(1).grad_norm;
      const std::lock_guard lock(mutex);
      if (number == 0) norms[static_cast<std::size_t>(which)] = norm;
    });
    ++which;
  }
  EXPECT_NEAR(norms[1] / norms[0], 1, 0.08);  // five standard deviations
}

}  // namespace
}  // namespace atl::train
