#include "atoll/train/island/params.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "atoll/comm/world.h"
#include "atoll/parallel/store/whole_state.h"
#include "atoll/simd/bf16.h"
#include "atoll/train/config/outer_options.h"
#include "atoll/train/ranks/sharing.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

constexpr int kRanks = 3;
constexpr int kFragments = 2;

struct Kind {
  int zero = 0;
  Dtype dtype = Dtype::kF32;
  bool replicate = false;
};

TrainConfig config_of(const Kind& kind) {
  TrainConfig config;
  config.dp.zero = kind.zero;
  config.train.batch_size = 6;
  config.train.micro_batch = 2;
  return config;
}

StateOptions options_of(const Kind& kind, int num_ranks, int rank) {
  StateOptions options = {.model = testing::tiny_model("llama"), .micro_batch = 2, .context = 16};
  options.model.vocab_size = 2000;  // so that every rank has a part of something
  options.build.dtype = kind.dtype;
  options.data_parallel = data_parallel_options(config_of(kind), num_ranks, rank);
  options.replicate = kind.replicate;
  return options;
}

// What a rank alone begins with: the flat vector in f32.
std::vector<float> initial_values(const Kind& kind) {
  testing::Bench bench(options_of({.dtype = kind.dtype}, 1, 0), 1);
  const Tensor values = bench.state.store().values();
  std::vector<float> all(static_cast<std::size_t>(values.num_elements()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = kind.dtype == Dtype::kBf16 ? to_f32(values.data<Bf16>()[i]) : values.data<float>()[i];
  }
  return all;
}

bool is_in(const std::vector<parallel::ElementRange>& ranges, std::int64_t element) {
  for (const parallel::ElementRange& range : ranges) {
    if (range.begin <= element && element < range.end) return true;
  }
  return false;
}

// Whether what a rank holds is `expected`, in values, masters and its neighbour's part.
void expect_held(TrainState& state, const std::vector<float>& expected) {
  parallel::HeldVectors held;
  for (const auto& piece : parallel::held_pieces(state.store(), nullptr)) {
    held["values"].push_back({piece.begin, piece.tensor});
  }
  for (const auto& piece : state.optimizer().state()) {
    if (piece.name == "master") held["values"].push_back({piece.begin, piece.tensor});
  }
  if (state.replica() != nullptr) {
    for (const auto& [name, pieces] : state.replica()->held()) {
      if (name != "values" && name != "master") continue;
      held["values"].insert(held["values"].end(), pieces.begin(), pieces.end());
    }
  }
  for (const parallel::HeldPiece& piece : held["values"]) {
    for (std::int64_t i = 0; i < piece.tensor.num_elements(); ++i) {
      const float wanted = expected[static_cast<std::size_t>(piece.begin + i)];
      if (piece.tensor.dtype() == Dtype::kBf16) {
        ASSERT_EQ(to_f32(piece.tensor.data<Bf16>()[i]), to_f32(to_bf16(wanted))) << i;
      } else {
        ASSERT_EQ(piece.tensor.data<float>()[i], wanted) << i;
      }
    }
  }
}

void read_and_write_one_fragment(const Kind& kind, comm::World& world) {
  const TrainConfig config = config_of(kind);
  Ranks ranks(world, config);
  testing::Bench bench(options_of(kind, kRanks, world.rank()), 1);
  TrainState& state = bench.state;
  state.connect(ranks.group(), ranks.shard(), ranks.replicate());
  if (kind.replicate) state.replica()->synchronise(ranks.shard(), state.optimizer());
  std::vector<float> expected = initial_values(kind);
  IslandParams params(fragments_of(state.store().layout(), kFragments), state, ranks);
  const std::vector<parallel::ElementRange>& fragment = params.ranges(1);
  const bool is_shared = kind.zero == 3 || (kind.zero > 0 && kind.dtype == Dtype::kBf16);
  const auto elements_of = [&](int rank) {
    std::int64_t count = 0;
    parallel::intersect(parallel::element_ranges(state.store().layout(), rank), fragment,
                        [&](std::int64_t begin, std::int64_t end) { count += end - begin; });
    return static_cast<std::uint64_t>(count);
  };

  // The lead receives what it lacks of this fragment, and nobody else receives anything.
  std::uint64_t before = ranks.shard().traffic().received;
  params.gather(1);
  std::uint64_t received = ranks.shard().traffic().received - before;
  const auto all = static_cast<std::uint64_t>(params.elements(1));
  EXPECT_EQ(received, ranks.is_lead() && is_shared ? 4 * (all - elements_of(0)) : 0);
  if (ranks.is_lead()) {
    EXPECT_TRUE(params.has(1));
    EXPECT_FALSE(params.has(0));
    std::size_t at = 0;
    for (const parallel::ElementRange& range : fragment) {
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        ASSERT_EQ(params.values(1)[at++], expected[static_cast<std::size_t>(i)]) << i;
      }
    }
    for (float& value : params.values(1)) value = 3 * value + 1;
    params.mark_changed(1);
  }

  // All have the change, and with ZeRO 3 no rank receives more than what it holds.
  before = ranks.group().traffic().received;
  params.scatter(1);
  received = ranks.group().traffic().received - before;
  if (kind.zero == 3) {
    const std::uint64_t copied = kind.replicate ? elements_of((world.rank() + 1) % kRanks) : 0;
    EXPECT_EQ(received, ranks.is_lead() ? 0 : 4 * (elements_of(world.rank()) + copied));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (is_in(fragment, static_cast<std::int64_t>(i))) expected[i] = 3 * expected[i] + 1;
  }
  expect_held(state, expected);
}

TEST(IslandParams, MoveOneFragmentAndNoMore) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    for (int zero = 0; zero <= 3; ++zero) {
      for (const bool replicate : {false, true}) {
        if (replicate && zero == 0) continue;
        SCOPED_TRACE(fmt::format("ZeRO {}, {}, replicate {}", zero, dtype_name(dtype), replicate));
        comm::run_threads(kRanks, {.timeout_s = 60}, [&](comm::World& world) {
          read_and_write_one_fragment({zero, dtype, replicate}, world);
        });
      }
    }
  }
}

// The same where each rank has a part of the fragment, whatever it trains.
void read_and_write_parts(const Kind& kind, comm::World& world) {
  const TrainConfig config = config_of(kind);
  Ranks ranks(world, config);
  testing::Bench bench(options_of(kind, kRanks, world.rank()), 1);
  TrainState& state = bench.state;
  state.connect(ranks.group(), ranks.shard(), ranks.replicate());
  std::vector<float> expected = initial_values(kind);
  IslandParams params(fragments_of(state.store().layout(), kFragments), state, ranks, {kRanks, 2});
  std::vector<std::int64_t> places;  // in the flat vector, of each element of the fragment
  for (const parallel::ElementRange& range : params.ranges(1)) {
    for (std::int64_t i = range.begin; i < range.end; ++i) places.push_back(i);
  }
  const parallel::ElementRange own = params.own_part(1);
  EXPECT_LT(own.size(), params.whole_elements(1));

  params.gather(1);
  ASSERT_TRUE(params.has(1));
  ASSERT_EQ(std::ssize(params.values(1)), own.size());
  for (std::int64_t i = own.begin; i < own.end; ++i) {
    float& value = params.values(1)[static_cast<std::size_t>(i - own.begin)];
    const std::int64_t place = places[static_cast<std::size_t>(i)];
    ASSERT_EQ(value, expected[static_cast<std::size_t>(place)]) << i;
    value = 3 * value + 1;
  }
  params.mark_changed(1);
  params.scatter(1);
  EXPECT_TRUE(params.changed().empty());
  for (const std::int64_t place : places) {
    float& value = expected[static_cast<std::size_t>(place)];
    value = 3 * value + 1;
  }
  expect_held(state, expected);
}

TEST(IslandParams, ComeToEachRankInParts) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    for (int zero = 0; zero <= 3; ++zero) {
      SCOPED_TRACE(fmt::format("ZeRO {}, {}", zero, dtype_name(dtype)));
      comm::run_threads(kRanks, {.timeout_s = 60}, [&](comm::World& world) {
        read_and_write_parts({zero, dtype, false}, world);
      });
    }
  }
}

TEST(OuterMemory, OfARankIsItsPart) {
  testing::Bench bench(options_of({}, 1, 0), 1);
  const parallel::FlatLayout& layout = bench.state.whole_layout();
  const auto bytes = [&](const std::string& codec, int ranks) {
    OuterSettings outer;
    outer.codec = codec;
    std::size_t sum = 0;
    for (const auto& part : outer_memory_of_rank(outer, layout, ranks)) sum += part.bytes;
    return sum;
  };
  for (const char* codec : {"f32", "int8"}) {
    // A piece more than an even part, of what the test's model has some dozens of.
    EXPECT_LT(bytes(codec, 4), bytes(codec, 1) * 30 / 100) << codec;
    EXPECT_GE(bytes(codec, 4), bytes(codec, 1) / 4 - 64) << codec;
  }
}

TEST(IslandParams, TheLeadHasOneFragmentAtATime) {
  const TrainConfig config = config_of({});
  comm::run_threads(1, {}, [&](comm::World& world) {
    Ranks ranks(world, config);
    testing::Bench bench(options_of({}, 1, 0), 1);
    IslandParams params(fragments_of(bench.state.store().layout(), kFragments), bench.state, ranks);
    params.gather(0);
    params.gather(1);
    EXPECT_FALSE(params.has(0));
    params.mark_changed(1);
    params.gather(0);  // what is still to be written stays
    EXPECT_TRUE(params.has(0));
    EXPECT_EQ(params.changed(), std::vector<int>{1});
    params.scatter(1);
    EXPECT_TRUE(params.changed().empty());
    params.forget();
    EXPECT_FALSE(params.has(0));
    EXPECT_FALSE(params.has(1));
  });
}

}  // namespace
}  // namespace atl::train
