// Factors of low rank on the fake GPU: the bits of ref. parallel/gpu_reductions_test.cpp compares
// whole reductions with a CPU's.

#include "atoll/ops/codes/factors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/ops/codes/ref_factors.h"
#include "atoll/ops/cuda/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

// Rows and columns about which blocks of 8, 32 and 256 begin, end, and are cut.
constexpr std::int64_t kRows[] = {9, 7, 35}, kCols[] = {17, 260, 8};
constexpr std::int64_t kMatrices = std::ssize(kRows);
constexpr std::int64_t kMFirst = 5;

struct State {
  OwnedTensor<std::int64_t> matrices;
  OwnedTensor<float> m, residual, p, q, other;
  OwnedTensor<std::int32_t> flags, made;
  bool operator==(const State& x) const {
    const auto same = [](const OwnedTensor<float>& a, const OwnedTensor<float>& b) {
      return std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
    };
    return same(m, x.m) && same(residual, x.residual) && same(p, x.p) && same(q, x.q) &&
           same(other, x.other) && made == x.made;
  }
};

State start_of(std::int64_t rank) {
  State s;
  s.matrices = OwnedTensor<std::int64_t>({kMatrices, kFactorColumns});
  std::int64_t elements = 0, rows = 0, cols = 0;
  for (std::int64_t i = 0; i < kMatrices; ++i) {
    std::int64_t* row = &s.matrices.values[static_cast<std::size_t>(i * kFactorColumns)];
    row[kFactorBegin] = kMFirst + elements;
    row[kFactorRows] = kRows[i];
    row[kFactorCols] = kCols[i];
    row[kFactorResidual] = elements;
    row[kFactorP] = rank * rows;
    row[kFactorQ] = rank * cols;
    elements += kRows[i] * kCols[i];
    rows += kRows[i];
    cols += kCols[i];
  }
  s.m = random_tensor<float>({elements}, 1);
  s.residual = random_tensor<float>({elements}, 2, 0.1F);
  s.p = random_tensor<float>({rank * rows}, 3);
  s.q = random_tensor<float>({rank * cols}, 4);
  s.other = OwnedTensor<float>({rank * rows}, 1e30F);
  s.flags = OwnedTensor<std::int32_t>({kMatrices}, 1);
  s.made = OwnedTensor<std::int32_t>({kMatrices}, 7);
  return s;
}

template <typename View>
Factors factors_of(State& s, std::int64_t rank, bool has_residual, const View& view) {
  return {.matrices = view(s.matrices),
          .rank = rank,
          .most_rows = *std::max_element(kRows, kRows + kMatrices),
          .most_cols = *std::max_element(kCols, kCols + kMatrices),
          .most_elements = 7 * 260,
          .m = view(s.m),
          .m_first = kMFirst,
          .p = view(s.p),
          .q = view(s.q),
          .residual = has_residual ? view(s.residual) : Tensor()};
}

// `call(run, state, view)` with ops, and with ref where run is null.
template <typename Call>
State check(const State& start, const Call& call) {
  auto got = test::in_every_order(
      start, [&](Gpu& gpu, State& s) { call(&gpu.run, s, [&](auto& one) { return gpu(one); }); },
      kDiffers);
  State exact = start;
  call(nullptr, exact, [](auto& one) { return one.view(); });
  EXPECT_EQ(got, exact);
  return got;
}

TEST(CudaFactors, ProjectionsGiveTheBitsOfRef) {
  for (const std::int64_t rank : {1, 4, 5}) {
    for (const bool has_residual : {false, true}) {
      const State start = start_of(rank);
      const State got = check(start, [&](atl::Run* run, State& s, const auto& view) {
        const Factors all = factors_of(s, rank, has_residual, view);
        run != nullptr ? project_rows(*run, all) : ref::project_rows(all);
      });
      EXPECT_EQ(got.m == start.m, !has_residual);
    }
    State start = start_of(rank);
    start.flags[1] = 0;
    const State got = check(start, [&](atl::Run* run, State& s, const auto& view) {
      const Factors all = factors_of(s, rank, true, view);
      const Tensor flags = view(s.flags);
      run != nullptr ? project_columns(*run, all, flags) : ref::project_columns(all, flags);
    });
    EXPECT_EQ(got.q[rank * kCols[0]], 0);
    EXPECT_NE(got.q[0], 0);
  }
}

// More rows than the buffers of a block of columns hold, and more sums than one reading has.
TEST(CudaFactors, ColumnsOfATallMatrixHaveTheBitsOfRef) {
  constexpr std::int64_t kRank = 17, kTall = 1300, kFew = 9;
  State start = start_of(1);
  start.matrices = OwnedTensor<std::int64_t>({1, kFactorColumns});
  start.matrices[kFactorBegin] = kMFirst;
  start.matrices[kFactorRows] = kTall;
  start.matrices[kFactorCols] = kFew;
  start.m = random_tensor<float>({kTall * kFew}, 1);
  start.p = random_tensor<float>({kRank * kTall}, 3);
  start.q = random_tensor<float>({kRank * kFew}, 4);
  start.flags = OwnedTensor<std::int32_t>({1}, 1);
  check(start, [&](atl::Run* run, State& s, const auto& view) {
    Factors all = factors_of(s, kRank, false, view);
    all.most_rows = kTall;
    all.most_cols = kFew;
    const Tensor flags = view(s.flags);
    run != nullptr ? project_columns(*run, all, flags) : ref::project_columns(all, flags);
  });
}

TEST(CudaFactors, WhatTheyLeaveAndTheirProductHaveTheBitsOfRef) {
  for (const std::int64_t rank : {1, 3}) {
    State start = start_of(rank);
    start.flags[2] = 0;
    // The first element of the second matrix's product is large; its last block is no whole one.
    start.p[rank * kRows[0]] = start.q[rank * kCols[0]] = 50;
    const State residual = check(start, [&](atl::Run* run, State& s, const auto& view) {
      const Factors all = factors_of(s, rank, true, view);
      const Tensor flags = view(s.flags);
      run != nullptr ? keep_residual(*run, all, flags) : ref::keep_residual(all, flags);
    });
    const std::int64_t last = start.residual.size() - 1;
    EXPECT_EQ(residual.residual[last], start.residual[last]);
    EXPECT_NE(residual.residual[0], start.residual[0]);
    const State restored = check(start, [&](atl::Run* run, State& s, const auto& view) {
      const Factors all = factors_of(s, rank, true, view);
      const Tensor flags = view(s.flags);
      run != nullptr ? restore_product(*run, all, flags) : ref::restore_product(all, flags);
    });
    EXPECT_TRUE(std::isnan(restored.m[last]));
    EXPECT_FALSE(std::isnan(restored.m[0]));
  }
}

// With infinities a rest is not finite, and is not rounded.
TEST(CudaFactors, ARestThatIsNotFiniteHasTheBitsOfRef) {
  State start = start_of(1);
  start.m[3] = std::numeric_limits<float>::infinity();
  check(start, [&](atl::Run* run, State& s, const auto& view) {
    const Factors all = factors_of(s, 1, true, view);
    const Tensor flags = view(s.flags);
    run != nullptr ? keep_residual(*run, all, flags) : ref::keep_residual(all, flags);
  });
}

TEST(CudaFactors, MoreMatricesThanAGridHasRowsForAreRefused) {
  Gpu gpu;
  State s = start_of(1);
  OwnedTensor<std::int64_t> matrices({65536, kFactorColumns});
  Factors all = factors_of(s, 1, false, [&](auto& one) { return gpu(one); });
  all.matrices = gpu(matrices);
  EXPECT_THAT([&] { project_rows(gpu.run, all); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("more than 65,535 matrices")));
}

TEST(CudaFactors, OrthogonalVectorsHaveTheBitsOfRef) {
  for (const bool in_place : {false, true}) {
    for (const bool has_given : {false, true}) {
      State start = start_of(3);
      // Zeros stay zeros; one matrix is not finite, another was not.
      for (std::int64_t i = 0; i < kRows[0]; ++i) start.p[i] = 0;
      if (!has_given) start.p[3 * (kRows[0] + kRows[1]) + 40] = std::nanf("");
      start.flags[1] = 0;
      const State got = check(start, [&](atl::Run* run, State& s, const auto& view) {
        const Tensor from = view(s.p), other = view(s.other);
        const Orthogonalise args = {.matrices = view(s.matrices),
                                    .rank = 3,
                                    .at = kFactorP,
                                    .n = kFactorRows,
                                    .from = from,
                                    .to = in_place ? from : other,
                                    .given = has_given ? view(s.flags) : Tensor(),
                                    .made = view(s.made)};
        run != nullptr ? orthogonalise(*run, args) : ref::orthogonalise(args);
      });
      const OwnedTensor<std::int32_t> made = got.made;
      EXPECT_EQ(made[0], 1);
      EXPECT_EQ(made[1], has_given ? 0 : 1);
      EXPECT_EQ(made[2], has_given ? 1 : 0);
    }
  }
}

TEST(CudaFactors, VectorsThatAreLookedAtStay) {
  State start = start_of(2);
  start.p[2 * kRows[0]] = std::numeric_limits<float>::infinity();
  const State got = check(start, [&](atl::Run* run, State& s, const auto& view) {
    const Orthogonalise args = {
        .matrices = view(s.matrices), .rank = 2, .from = view(s.p), .made = view(s.made)};
    run != nullptr ? orthogonalise(*run, args) : ref::orthogonalise(args);
  });
  EXPECT_EQ(got.made.values, (std::vector<std::int32_t>{1, 0, 1}));
  EXPECT_EQ(got.p, start.p);
}

}  // namespace
}  // namespace atl::ops
