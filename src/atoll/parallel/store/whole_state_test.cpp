#include "atoll/parallel/store/whole_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "atoll/comm/world.h"
#include "atoll/nn/models/family.h"
#include "atoll/parallel/layout/gather_text.h"

namespace atl::parallel {
namespace {

using ::testing::ElementsAre;

nn::ModelConfig tiny_model() {
  nn::ModelConfig config;
  config.family = "llama";
  config.vocab_size = 301;
  config.hidden_size = 60;
  config.num_layers = 2;
  config.heads = {.num_heads = 6, .num_kv_heads = 3, .head_dim = 10};
  config.intermediate_size = 150;
  config.max_positions = 8;
  return config;
}

TEST(GatherText, GivesEveryRanksText) {
  comm::run_threads(3, {.timeout_s = 60}, [](comm::World& world) {
    const std::vector<std::string> mine = {"one", "", "three\n3"};
    EXPECT_EQ(gather_text(&world.all(), mine[static_cast<std::size_t>(world.rank())]), mine);
    EXPECT_THAT(gather_text(&world.all(), ""), ElementsAre("", "", ""));
  });
  EXPECT_THAT(gather_text(nullptr, "alone"), ElementsAre("alone"));
}

TEST(ShareOut, GivesEachParameterToWhoHasLeast) {
  const auto model = nn::build_model(tiny_model(), {});
  const FlatLayout layout(*model, {});
  for (const int ranks : {1, 2, 3, 7, 64}) {
    const std::vector<int> takers = share_out(layout, ranks);
    std::vector<std::size_t> bytes(static_cast<std::size_t>(ranks));
    std::size_t largest = 0;
    for (std::size_t i = 0; i < takers.size(); ++i) {
      const std::size_t size = layout.trained()[i]->spec.bytes();
      bytes.at(static_cast<std::size_t>(takers[i])) += size;
      largest = std::max(largest, size);
    }
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    EXPECT_LE(*most - *least, largest) << ranks;
    // Those that take any are the first: their files are numbered without a gap.
    const auto used = static_cast<std::size_t>(*std::max_element(takers.begin(), takers.end())) + 1;
    EXPECT_EQ(used, std::min<std::size_t>(takers.size(), bytes.size()));
  }
}

// A flat vector whose elements are their own numbers.
std::vector<float> numbered(const FlatLayout& layout) {
  std::vector<float> whole(static_cast<std::size_t>(layout.flat().shape.num_elements()));
  std::iota(whole.begin(), whole.end(), 0.0F);
  return whole;
}

std::vector<optim::StateTensor> pieces_of(const FlatLayout& layout, int rank, float* whole) {
  std::vector<optim::StateTensor> pieces;
  for (const Bucket& bucket : layout.buckets()) {
    const std::int64_t begin = bucket.begin + bucket.parts[static_cast<std::size_t>(rank)];
    pieces.push_back({"v", begin, Tensor(whole + begin, {Dtype::kF32, {bucket.part_size(rank)}})});
  }
  return pieces;
}

TEST(WholeState, MovesEachByteOnce) {
  constexpr int kRanks = 3;
  comm::run_threads(kRanks, {.timeout_s = 60}, [](comm::World& world) {
    const auto model = nn::build_model(tiny_model(), {});
    const FlatLayout layout(*model, {.num_ranks = kRanks, .bucket_bytes = 64 << 10});
    std::vector<float> whole = numbered(layout);
    const auto pieces = pieces_of(layout, world.rank(), whole.data());
    WholeState state(layout, pieces, &world.all());
    const std::vector<int> takers = share_out(layout, kRanks);
    state.allocate([&](const std::string&, std::size_t i) { return takers[i]; }, false);
    const std::uint64_t before = world.all().traffic().received;
    state.collect();

    std::uint64_t missing = 0;
    auto next = state.tensors().begin();
    for (std::size_t i = 0; i < takers.size(); ++i) {
      if (takers[i] != world.rank()) continue;
      const WholeTensor& found = *next++;
      ASSERT_EQ(found.param, layout.trained()[i]);
      const std::int64_t count = found.tensor.num_elements();
      const float* expected = whole.data() + layout.offset(i);
      EXPECT_TRUE(std::equal(expected, expected + count, found.tensor.data<float>()));
      std::int64_t held = 0;
      for (const optim::StateTensor& piece : pieces) {
        const std::int64_t begin = std::max(piece.begin, layout.offset(i));
        const std::int64_t end =
            std::min(piece.begin + piece.tensor.num_elements(), layout.offset(i) + count);
        held += std::max<std::int64_t>(0, end - begin);
      }
      missing += static_cast<std::uint64_t>(count - held) * sizeof(float);
    }
    EXPECT_EQ(next, state.tensors().end());
    EXPECT_EQ(world.all().traffic().received - before, missing);
    EXPECT_GT(missing, 0U);
  });
}

TEST(WholeState, WhatEveryRankHoldsIsNeitherSentNorCopied) {
  comm::run_threads(2, {.timeout_s = 60}, [](comm::World& world) {
    const auto model = nn::build_model(tiny_model(), {});
    const FlatLayout layout(*model, {});
    std::vector<float> whole = numbered(layout);
    const optim::StateTensor all = {"", 0, Tensor(whole.data(), layout.flat())};
    WholeState state(layout, std::span(&all, 1), &world.all());
    state.allocate([](const std::string&, std::size_t i) { return static_cast<int>(i % 2); },
                   false);
    const std::uint64_t before = world.all().traffic().received;
    state.collect();
    EXPECT_EQ(world.all().traffic().received, before);
    for (const WholeTensor& tensor : state.tensors()) {
      const auto* at = tensor.tensor.data<float>();
      EXPECT_TRUE(at >= whole.data() && at < whole.data() + whole.size());
    }
  });
}

TEST(WholeState, WhatNobodyHoldsIsABug) {
  comm::run_threads(2, {.timeout_s = 60}, [](comm::World& world) {
    const auto model = nn::build_model(tiny_model(), {});
    const FlatLayout layout(*model, {.num_ranks = 3});
    std::vector<float> whole = numbered(layout);
    WholeState state(layout, pieces_of(layout, world.rank(), whole.data()), &world.all());
    state.allocate([](const std::string&, std::size_t) { return 0; }, false);
    if (world.rank() == 0) {
      EXPECT_THROW(state.collect(), Error);
    }
  });
}

TEST(FillPieces, ReadsEachParameterThatAPieceTouchesAndNoOther) {
  const auto model = nn::build_model(tiny_model(), {});
  const FlatLayout layout(*model, {.num_ranks = 4, .bucket_bytes = 64 << 10});
  const std::vector<float> expected = numbered(layout);
  std::vector<float> filled(expected.size(), -1);
  ThreadPool threads(2);
  std::atomic<std::size_t> reads = 0;
  for (int rank = 0; rank < 4; ++rank) {
    fill_pieces(layout, pieces_of(layout, rank, filled.data()), &threads,
                [&](const std::string& name, const nn::Param& param, const Tensor& whole) {
                  EXPECT_EQ(name, "v");
                  ++reads;
                  const auto i = static_cast<std::size_t>(
                      std::find(layout.trained().begin(), layout.trained().end(), &param) -
                      layout.trained().begin());
                  std::copy_n(expected.data() + layout.offset(i), whole.num_elements(),
                              whole.data<float>());
                });
  }
  for (std::size_t i = 0; i < layout.trained().size(); ++i) {
    const std::int64_t begin = layout.offset(i);
    const std::int64_t count = layout.trained()[i]->spec.shape.num_elements();
    EXPECT_TRUE(std::equal(expected.begin() + begin, expected.begin() + begin + count,
                           filled.begin() + begin));
  }
  EXPECT_GT(reads, layout.trained().size());
  EXPECT_LT(reads, 2 * layout.trained().size());
}

}  // namespace
}  // namespace atl::parallel
