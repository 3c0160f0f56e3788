// Ops on the fake GPU that are to give the bits that ref gives on the host: each rounds once.

#include "atoll/ops/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include "atoll/ops/copy_blocks/copy_blocks.h"
#include "atoll/ops/cuda/launch_shapes.h"
#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/elementwise/ref.h"
#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/embedding/ref.h"
#include "atoll/ops/rope/ref.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

template <typename T>
struct Three {
  OwnedTensor<T> a, b, y;
  bool operator==(const Three&) const = default;
};

template <typename T>
void check_add() {
  ThreadPool threads(1);
  for (const auto& [rows, width] : {std::pair{1, 1}, {7, 33}, {5, 1032}}) {
    const Three<T> start{random_tensor<T>({rows, width}, 1), random_tensor<T>({rows, width}, 2),
                         OwnedTensor<T>({rows, width})};
    const auto sum = test::in_every_order(
        start, [](Gpu& gpu, Three<T>& s) { add(gpu.run, gpu(s.a), gpu(s.b), gpu(s.y)); }, kDiffers);
    Three<T> exact = start;
    ref::add<T>(exact.a, exact.b, exact.y);
    EXPECT_EQ(sum.y, exact.y);
    Three<T> biased = start;
    biased.b = random_tensor<T>({width}, 3);
    const auto with_bias = test::in_every_order(
        biased,
        [](Gpu& gpu, Three<T>& s) {
          const Tensor y = gpu(s.y);
          copy(gpu.run, gpu(s.a), y);
          add_bias(gpu.run, y, gpu(s.b), y);
        },
        kDiffers);
    ref::add_bias<T>(threads, biased.a, biased.b, biased.y);
    EXPECT_EQ(with_bias.y, biased.y);
  }
}

template <typename T>
void check_scale() {
  for (const auto& [rows, width] : {std::pair{1, 1}, {7, 33}, {5, 1032}}) {
    const Three<T> start{random_tensor<T>({rows, width}, 1), {}, OwnedTensor<T>({rows, width})};
    const auto scaled = test::in_every_order(
        start, [](Gpu& gpu, Three<T>& s) { scale(gpu.run, 0.3, gpu(s.a), gpu(s.y)); }, kDiffers);
    Three<T> exact = start;
    ref::scale<T>(0.3, exact.a, exact.y);
    EXPECT_EQ(scaled.y, exact.y);
  }
}

TEST(CudaScale, GivesTheBitsOfRef) {
  check_scale<float>();
  check_scale<Bf16>();
}

TEST(CudaAdd, GivesTheBitsOfRef) {
  check_add<float>();
  check_add<Bf16>();
}

TEST(CudaConvert, RoundsAndWidensAsTheHost) {
  for (const std::int64_t size : {1, 7, 2056}) {
    Gpu gpu;
    OwnedTensor<float> x = random_tensor<float>({size}, 1), back({size});
    x[0] = std::nanf("");
    OwnedTensor<Bf16> y({size});
    const Tensor narrow = gpu(y);
    convert(gpu.run, gpu(x), narrow);
    convert(gpu.run, narrow, gpu(back));
    gpu.finish();
    EXPECT_EQ(y, x.as<Bf16>());
    for (std::int64_t i = 1; i < size; ++i) EXPECT_EQ(back[i], to_f32(y[i]));
  }
}

TEST(CudaFill, ZeroesAllOfIt) {
  Gpu gpu;
  OwnedTensor<float> x = random_tensor<float>({1000}, 1);
  fill_zero(gpu.run, gpu(x));
  gpu.finish();
  EXPECT_EQ(x, OwnedTensor<float>({1000}));
}

template <typename T>
struct Two {
  OwnedTensor<T> x, y;
  bool operator==(const Two&) const = default;
};

template <typename T>
void check_dropout() {
  for (const Shape shape : {Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{2, 9, 128}}) {
    const Two<T> start{random_tensor<T>(shape, 1), OwnedTensor<T>(shape)};
    const auto set = [](Run& run) {
      run.seed = 0x123456789abcdef0;
      run.step = 11;
      run.first_sample = 5;
    };
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, Two<T>& s) {
          set(gpu.run);
          dropout(gpu.run, 0.3, 2, gpu(s.x), gpu(s.y));
        },
        kDiffers);
    test::TestRun host;
    set(host.run);
    Two<T> exact = start;
    ref::dropout<T>(host.run, 0.3, 2, exact.x, exact.y);
    EXPECT_EQ(got.y, exact.y) << shape.to_string();
  }
}

TEST(CudaDropout, DrawsWhatTheHostDraws) {
  check_dropout<float>();
  check_dropout<Bf16>();
}

template <typename T>
void check_dropout_of_parts() {
  struct Case {
    Shape shape;
    RowPart part;
  };
  const Case cases[] = {
      {{3, 4, 7}, {.count = 2, .index = 1}},
      {{2, 6, 8}, {.tokens = {.num_ranks = 3, .rank = 1}}},
      {{2, 6, 5}, {.tokens = {SequenceOrder::kZigzag, 3, 2}}},
      {{2, 2, 12}, {.count = 3, .index = 2, .tokens = {SequenceOrder::kZigzag, 2, 1}}}};
  for (const Case& c : cases) {
    const Two<T> start{random_tensor<T>(c.shape, 1),
                       OwnedTensor<T>(c.shape, test::number<T>(1e30))};
    const auto set = [](Run& run) {
      run.seed = 0x123456789abcdef0;
      run.step = 11;
      run.first_sample = 5;
    };
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, Two<T>& s) {
          set(gpu.run);
          dropout(gpu.run, 0.3, 2, gpu(s.x), gpu(s.y), c.part);
        },
        kDiffers);
    test::TestRun host;
    set(host.run);
    Two<T> exact = start;
    ref::dropout<T>(host.run, 0.3, 2, exact.x, exact.y, c.part);
    EXPECT_EQ(got.y, exact.y) << c.shape.to_string();
  }
}

TEST(CudaDropout, OfPartsOfABatchDrawsWhatTheHostDraws) {
  check_dropout_of_parts<float>();
  check_dropout_of_parts<Bf16>();
}

template <typename T>
void check_copy_blocks(std::int64_t width, std::int64_t length, std::int64_t column) {
  // (3, 4, width) to (4, 3, length) of its columns from `column` on.
  const Two<T> start{random_tensor<T>({3, 4, width}, 1),
                     OwnedTensor<T>({4, 3, length + 1}, test::number<T>(7))};
  const BlockPlaces from = {column, 4 * width, width};
  const BlockPlaces to = {0, length + 1, 3 * (length + 1)};
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, Two<T>& s) {
        copy_blocks(gpu.run, {3, 4}, length, gpu(s.x), from, gpu(s.y), to);
      },
      kDiffers);
  Two<T> exact = start;
  test::TestRun host;
  copy_blocks(host, {3, 4}, length, exact.x, from, exact.y, to);
  EXPECT_EQ(got, exact) << width << " " << length << " " << column;
}

TEST(CudaCopyBlocks, GivesTheBitsOfTheHost) {
  check_copy_blocks<float>(5, 2, 1);
  check_copy_blocks<float>(8, 3, 4);
  check_copy_blocks<Bf16>(5, 2, 1);
  check_copy_blocks<Bf16>(8, 7, 0);
  check_copy_blocks<double>(8, 3, 4);
}

TEST(CudaSumOfSquares, IsExactToDouble) {
  for (const std::int64_t size : {1, 1000, (1 << 16) + 77}) {
    OwnedTensor<float> x = random_tensor<float>({size}, 1);
    const double exact = ref::sum_of_squares<float>(x);
    for (std::uint64_t order = 0; order < 3; ++order) {
      Gpu gpu(order);
      // ref adds one after the other, which rounds by up to half a unit each time.
      const double rounding = 0x1p-53 * static_cast<double>(size);
      EXPECT_NEAR(sum_of_squares(gpu.run, gpu(x)), exact, rounding * exact) << size;
    }
  }
}

TEST(CudaSumOfSquares, OfBlocksIsTheSameWhereverTheyLie) {
  OwnedTensor<float> x = random_tensor<float>({3000}, 1);
  const std::vector<Block> blocks = {{5, 1000}, {1005, 0}, {1500, 1500}};
  std::vector<double> sums(3), other(1);
  Gpu gpu(3);
  const Tensor here = gpu(x);
  sums_of_squares(gpu.run, here, blocks, sums);
  sums_of_squares(gpu.run, here, std::span(blocks).last(1), other);
  EXPECT_NEAR(sums[0], ref::sum_of_squares<float>(x.view().rows(5, 1005)), 1e-10);
  EXPECT_EQ(sums[1], 0);
  EXPECT_EQ(sums[2], other[0]);
}

template <typename T>
struct RopeOperands {
  OwnedTensor<T> qkv;
  OwnedTensor<float> table;
  OwnedTensor<std::int32_t> positions;
  bool operator==(const RopeOperands&) const = default;
};

struct RopeCase {
  HeadLayout heads;
  std::int64_t rotated;
  RotaryPairs pairs = RotaryPairs::kHalves;
};

template <typename T>
void check_rope(const RopeCase& c, bool inverse, bool with_positions) {
  const RopeOperands<T> start{random_tensor<T>({2, 9, c.heads.qkv_width()}, 1),
                              random_tensor<float>({16, c.rotated}, 2),
                              test::random_tokens({2, 9}, 16, 3)};
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, RopeOperands<T>& s) {
        const Tensor positions = with_positions ? gpu(s.positions) : Tensor();
        rope(gpu.run, c.heads, gpu(s.table), positions, inverse, gpu(s.qkv), c.pairs);
      },
      kDiffers);
  RopeOperands<T> exact = start;
  const Tensor positions = with_positions ? exact.positions.view() : Tensor();
  ref::rope<T>(c.heads, exact.table, positions, inverse, exact.qkv, c.pairs);
  EXPECT_EQ(got.qkv, exact.qkv) << c.heads.head_dim << " " << c.rotated;
}

template <typename T>
void check_rope() {
  constexpr RotaryPairs kNeighbours = RotaryPairs::kNeighbours;
  const RopeCase cases[] = {{{1, 1, 2}, 2},
                            {{4, 2, 6}, 6},
                            {{3, 1, 64}, 64},
                            {{3, 1, 64}, 16},
                            {{2, 1, 33}, 8},  // heads that begin at no whole pack
                            {{1, 1, 2}, 2, kNeighbours},
                            {{3, 1, 64}, 64, kNeighbours},
                            {{4, 2, 64}, 32, kNeighbours},
                            {{2, 1, 33}, 8, kNeighbours}};
  for (const RopeCase& c : cases) {
    for (const bool inverse : {false, true}) {
      for (const bool with_positions : {false, true}) check_rope<T>(c, inverse, with_positions);
    }
  }
}

TEST(CudaRope, GivesTheBitsOfRef) {
  check_rope<float>();
  check_rope<Bf16>();
}

template <typename T>
struct EmbeddingOperands {
  OwnedTensor<std::int32_t> tokens, positions;
  OwnedTensor<T> table, y, dy;
  OwnedTensor<float> dtable, dpositions, dplaces;
  bool operator==(const EmbeddingOperands&) const = default;
};

template <typename T>
void check_embedding(std::int64_t length, std::int64_t width, std::int64_t vocab) {
  const EmbeddingOperands<T> start{
      test::random_tokens({2, length}, vocab, 1), test::random_tokens({2, length}, length, 7),
      random_tensor<T>({vocab, width}, 2),        OwnedTensor<T>({2, length, width}),
      random_tensor<T>({2, length, width}, 3),    random_tensor<float>({vocab, width}, 4),
      random_tensor<float>({length, width}, 5),   random_tensor<float>({length, width}, 8)};
  OwnedTensor<T> places = random_tensor<T>({length, width}, 6);
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, EmbeddingOperands<T>& s) {
        const Tensor tokens = gpu(s.tokens), y = gpu(s.y), dy = gpu(s.dy);
        embedding_forward(gpu.run, tokens, gpu(s.table), y);
        position_embedding_forward(gpu.run, {}, gpu(places), y);
        embedding_backward(gpu.run, tokens, dy, gpu(s.dtable));
        position_embedding_backward(gpu.run, gpu(s.positions), dy, gpu(s.dpositions));
        position_embedding_backward(gpu.run, {}, dy, gpu(s.dplaces));
      },
      kDiffers);
  EmbeddingOperands<T> exact = start;
  ref::embedding_forward<T>(exact.tokens, exact.table, exact.y);
  ref::position_embedding_forward<T>({}, places, exact.y);
  ref::embedding_backward<T>(exact.tokens, exact.dy, exact.dtable);
  ref::position_embedding_backward<T>(exact.positions, exact.dy, exact.dpositions);
  ref::position_embedding_backward<T>({}, exact.dy, exact.dplaces);
  EXPECT_EQ(got.y, exact.y);
  EXPECT_EQ(got.dtable, exact.dtable);
  EXPECT_EQ(got.dpositions, exact.dpositions);
  EXPECT_EQ(got.dplaces, exact.dplaces);
}

TEST(CudaEmbedding, GivesTheBitsOfRefInTheOrderOfRows) {
  check_embedding<float>(1, 1, 1);
  check_embedding<float>(90, 33, 7);    // two warps sort; a token has rows in both
  check_embedding<Bf16>(20, 70, 50);    // two digits of tokens
  check_embedding<float>(300, 8, 2);    // five warps; more than 32 rows of each token; four columns
  check_embedding<Bf16>(64, 12, 1);     // 128 rows of one token: whole groups, and no more
  check_embedding<Bf16>(17, 4, 40000);  // four digits
  check_embedding<float>(3, 132, 5);
  check_embedding<float>(3, 131, 5);  // more columns than a block has threads
  check_embedding<Bf16>(2, 516, 3);   // the same, by fours
}

TEST(CudaEmbedding, WidensATableOfBf16) {
  Gpu gpu;
  OwnedTensor<std::int32_t> tokens = test::random_tokens({1, 5}, 3, 1);
  OwnedTensor<Bf16> table = random_tensor<Bf16>({3, 9}, 2);
  OwnedTensor<float> y({1, 5, 9}), exact({1, 5, 9});
  embedding_forward(gpu.run, gpu(tokens), gpu(table), gpu(y));
  gpu.finish();
  ref::embedding_forward<Bf16, float>(tokens, table, exact);
  EXPECT_EQ(y, exact);
}

TEST(CudaLaunchShapes, CoverAllItemsAndCutRowsByShapeAlone) {
  using cuda::LaunchShape;
  EXPECT_EQ(cuda::warp_a_row(9, 128), (LaunchShape{.blocks_x = 3, .threads = 128}));
  EXPECT_EQ(cuda::thread_a_pack(4097, 8, 256), (LaunchShape{.blocks_x = 3, .threads = 256}));
  for (const std::int64_t rows : {1, 16, 17, 1024, 32768, 32769}) {
    const cuda::RowBlocks cut = cuda::row_blocks(rows, 16);
    EXPECT_LE(cut.count, 64);
    EXPECT_GE(cut.rows_per_block, 16);
    EXPECT_GE(cut.count * cut.rows_per_block, rows);
    EXPECT_LT((cut.count - 1) * cut.rows_per_block, rows);
  }
}

}  // namespace
}  // namespace atl::ops
