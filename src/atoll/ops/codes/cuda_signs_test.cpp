// Signs of momenta on the fake GPU: the bits of ref. parallel/gpu_signs_test.cpp compares whole
// steps with a CPU's.

#include "atoll/ops/codes/signs.h"

#include <gtest/gtest.h>

#include "atoll/ops/codes/ref_signs.h"
#include "atoll/ops/cuda/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

// Pieces about which groups of 8 and 256 begin, end, and are cut; in vectors of owners and of
// moments they lie in another order.
constexpr std::int64_t kCounts[] = {1, 255, 256, 300, 7, 2305};
constexpr std::int64_t kPieces = std::ssize(kCounts);

struct Pieces {
  OwnedTensor<std::int64_t> table{Shape{kPieces, kSignColumns}};
  std::int64_t elements = 0, bytes = 0;
};
Pieces pieces_of() {
  Pieces all;
  for (const std::int64_t count : kCounts) all.elements += count;
  std::int64_t at = 0;
  for (std::int64_t p = 0; p < kPieces; ++p) {
    std::int64_t* row = &all.table.values[static_cast<std::size_t>(p * kSignColumns)];
    row[kSignBegin] = at;
    row[kSignCount] = kCounts[p];
    row[kSignByte] = all.bytes;
    at += kCounts[p];
    row[kSignOwned] = all.elements - at;
    row[kSignHeld] = p == 2 ? -1 : row[kSignOwned];
    row[kSignDecay] = p % 2;
    all.bytes += 4 + (kCounts[p] + 7) / 8;
  }
  return all;
}

struct Vectors {
  OwnedTensor<std::int64_t> table;
  OwnedTensor<std::uint8_t> codes, sent;
  OwnedTensor<float> v, residual, grads, values, anchor, m;
  bool operator==(const Vectors&) const = default;
};

constexpr std::int64_t kSources = 3;

// Second moments of many sizes; some elements are masked, and one whole piece.
Vectors start_of(const Pieces& pieces) {
  const Shape shape = {pieces.elements};
  Vectors all{pieces.table,
              OwnedTensor<std::uint8_t>({pieces.bytes}),
              OwnedTensor<std::uint8_t>({kSources * pieces.bytes}),
              random_tensor<float>(shape, 1),
              random_tensor<float>(shape, 2, 1e-2F),
              random_tensor<float>(shape, 3),
              random_tensor<float>(shape, 4),
              random_tensor<float>(shape, 5),
              random_tensor<float>(shape, 6, 1e-2F)};
  for (std::int64_t i = 0; i < pieces.elements; ++i) {
    all.v[i] = i % 13 == 0 || (i > 0 && i < 256) ? 0 : all.v[i] * all.v[i] * 1e-3F;
    if (i % 17 == 0) all.residual[i] = i % 2 == 0 ? 0.0F : -0.0F;
  }
  const auto fill = [&](OwnedTensor<std::uint8_t>& codes, std::int64_t first, std::uint64_t seed) {
    const RngStream stream(seed, RngPurpose::kSynthetic);
    for (std::int64_t p = 0; p < kPieces; ++p) {
      const std::int64_t byte = first + pieces.table[p * kSignColumns + kSignByte];
      const float scale = 0.01F * static_cast<float>(p + 1);
      std::memcpy(&codes.values[static_cast<std::size_t>(byte)], &scale, sizeof scale);
      for (std::int64_t i = 0; i < (kCounts[p] + 7) / 8; ++i) {
        codes[byte + 4 + i] =
            static_cast<std::uint8_t>(stream.block(static_cast<std::uint64_t>(byte + i))[0]);
      }
    }
  };
  fill(all.codes, 0, 11);
  for (std::int64_t source = 0; source < kSources; ++source) {
    fill(all.sent, source * pieces.bytes, 20 + static_cast<std::uint64_t>(source));
  }
  return all;
}

const SignUnits kUnits = {.root_scale = 1.7F, .eps = 1e-6F};

template <typename Call, typename Exact>
void check(const Call& call, const Exact& exact, const char* what) {
  const Vectors start = start_of(pieces_of());
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, Vectors& s) {
        const auto on_gpu = [&](auto& one) { return gpu(one); };
        call(gpu.run, s, on_gpu);
      },
      kDiffers);
  Vectors expected = start;
  exact(expected, [](auto& one) { return one.view(); });
  EXPECT_EQ(got, expected) << what;
  EXPECT_FALSE(got == start) << what;
}

template <typename View>
EncodeSigns encoding(EncodeSigns::Adds adds, Vectors& s, const View& view, float per_moved) {
  const std::int64_t bytes = s.codes.size();
  const bool sums = adds == EncodeSigns::Adds::kRanks;
  return {.adds = adds,
          .units = kUnits,
          .pieces = view(s.table),
          .codes = view(s.codes),
          .v = {view(s.v), kSignBegin},
          .residual = {view(s.residual), sums ? kSignOwned : kSignBegin},
          .residual_share = adds == EncodeSigns::Adds::kGradients ? 1.0F : 0.6F,
          .grads = view(s.grads),
          .values = view(s.values),
          .anchor = view(s.anchor),
          .m = view(s.m),
          .beta1 = 0.9F,
          .rest = 0.3F,
          .per_moved = per_moved,
          .sent = {view(s.sent), 0, kSources, bytes},
          .share = 1.0F / kSources};
}

TEST(CudaSigns, EncodingGivesTheBitsOfRef) {
  using Adds = EncodeSigns::Adds;
  for (const auto& [adds, per_moved] : {std::pair(Adds::kNothing, 0.0F),
                                        {Adds::kGradients, 0.0F},
                                        {Adds::kMoves, 30.0F},
                                        {Adds::kMoves, 0.0F},
                                        {Adds::kRanks, 0.0F}}) {
    check(
        [&, adds = adds, per_moved = per_moved](atl::Run& run, Vectors& s, const auto& view) {
          encode_signs(run, encoding(adds, s, view, per_moved));
        },
        [&, adds = adds, per_moved = per_moved](Vectors& s, const auto& view) {
          ref::encode_signs(encoding(adds, s, view, per_moved));
        },
        "encode");
  }
}

TEST(CudaSigns, TheStepOfAllGivesTheBitsOfRef) {
  for (const bool has_anchor : {false, true}) {
    const auto args = [&](Vectors& s, const auto& view) {
      return ApplySigns{.units = kUnits,
                        .pieces = view(s.table),
                        .codes = view(s.codes),
                        .v = {view(s.v), kSignBegin},
                        .m = {view(s.m), has_anchor ? kSignBegin : kSignHeld},
                        .x = view(s.values),
                        .anchor = has_anchor ? view(s.anchor) : Tensor(),
                        .step_size = 0.02F,
                        .decay = 0.001F};
    };
    check([&](atl::Run& run, Vectors& s, const auto& view) { apply_signs(run, args(s, view)); },
          [&](Vectors& s, const auto& view) { ref::apply_signs(args(s, view)); }, "apply");
  }
}

TEST(CudaSigns, StepsWithoutAnExchangeGiveTheBitsOfRef) {
  for (const auto& [sums, is_first] : {std::pair(true, false), {false, true}, {false, false}}) {
    const auto args = [sums = sums, is_first = is_first](Vectors& s, const auto& view) {
      return ZeroOneStep{.sums = sums,
                         .is_first = is_first,
                         .units = kUnits,
                         .pieces = view(s.table),
                         .x = view(s.values),
                         .grads = view(s.grads),
                         .m = view(s.m),
                         .v = view(s.v),
                         .anchor = view(s.anchor),
                         .beta1 = 0.9F,
                         .beta2 = 0.99F,
                         .rest1 = 0.1F,
                         .rest2 = 0.01F,
                         .grad_scale = 0.7F,
                         .step_size = 0.02F,
                         .decay = 0.001F};
    };
    check([&](atl::Run& run, Vectors& s, const auto& view) { zero_one_step(run, args(s, view)); },
          [&](Vectors& s, const auto& view) { ref::zero_one_step(args(s, view)); }, "step");
  }
}

TEST(CudaSigns, TheResidualIsAddedToTheOwners) {
  check(
      [](atl::Run& run, Vectors& s, const auto& view) {
        add_scaled(run, view(s.table), 0.9F, {view(s.m), kSignBegin},
                   {view(s.residual), kSignOwned});
      },
      [](Vectors& s, const auto&) {
        ref::add_scaled(s.table, 0.9F, {s.m, kSignBegin}, {s.residual, kSignOwned});
      },
      "add");
}

struct Sketched {
  OwnedTensor<float> x, sums;
  bool operator==(const Sketched&) const = default;
};

TEST(CudaSigns, SketchesGiveTheBitsOfRef) {
  // The last has rows that are summed together: more than kSketchPartials elements.
  for (const auto& [n, numbers] : {std::pair<std::int64_t, std::int64_t>{1, 64},
                                   {1000, 512},
                                   {9000, 8192},
                                   {kSketchPartials + 700, 8192}}) {
    const Sketched start{random_tensor<float>({n}, 1), OwnedTensor<float>({numbers}, 1e30F)};
    const auto call = [&](Gpu& gpu, Sketched& s) { sketch(gpu.run, gpu(s.x), s.sums.values); };
    Sketched got = start;
    if (n < kSketchPartials) {
      got = test::in_every_order(start, call, kDiffers);
    } else {  // once: it has many threads
      Gpu gpu;
      call(gpu, got);
      gpu.finish();
    }
    Sketched exact = start;
    ref::sketch(exact.x, exact.sums.values);
    EXPECT_EQ(got, exact) << n;
  }
}

}  // namespace
}  // namespace atl::ops
