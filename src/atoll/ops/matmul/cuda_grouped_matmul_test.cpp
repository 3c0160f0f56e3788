// Products of groups on the fake GPU, with tensor cores and without, against the definition in
// double.

#include "atoll/ops/matmul/grouped_matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "atoll/ops/cuda/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

struct Case {
  std::vector<std::int32_t> offsets;
  std::int64_t rows, out, in;
  std::int64_t groups() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  // -1: left over.
  std::int64_t group_of(std::int64_t row) const {
    for (std::int64_t g = 0; g < groups(); ++g) {
      if (row < offsets[static_cast<std::size_t>(g + 1)]) return g;
    }
    return -1;
  }
};

// 40 groups of no row but for two, which a warp finds in two turns.
std::vector<std::int32_t> many_groups() {
  std::vector<std::int32_t> offsets(41, 0);
  for (std::size_t g = 3; g < offsets.size(); ++g) offsets[g] = g < 37 ? 5 : 22;
  return offsets;
}

template <typename T>
struct Products {
  OwnedTensor<std::int32_t> offsets;
  OwnedTensor<T> a, b, w, c, d;
  OwnedTensor<float> dw;
  // Of the results: operands have NaN.
  bool operator==(const Products& o) const { return c == o.c && d == o.d && dw == o.dw; }
};

// What is left over holds NaN, which no result may have.
template <typename T>
Products<T> make(const Case& c) {
  Products<T> o = {OwnedTensor<std::int32_t>({c.groups() + 1}),
                   random_tensor<T>({c.rows, c.in}, 1),
                   random_tensor<T>({c.rows, c.out}, 2),
                   random_tensor<T>({c.groups() * c.out, c.in}, 3),
                   OwnedTensor<T>({c.rows, c.out}, test::number<T>(1e30)),
                   OwnedTensor<T>({c.rows, c.in}, test::number<T>(1e30)),
                   random_tensor<float>({c.groups() * c.out, c.in}, 4)};
  o.offsets.values = c.offsets;
  for (std::int64_t i = c.offsets.back(); i < c.rows; ++i) {
    for (std::int64_t k = 0; k < c.in; ++k) o.a[i * c.in + k] = test::number<T>(std::nan(""));
    for (std::int64_t n = 0; n < c.out; ++n) o.b[i * c.out + n] = test::number<T>(std::nan(""));
  }
  return o;
}

void use(Run& run, Tensor offsets, Tensor a, Tensor b, Tensor w, Tensor c, Tensor d, Tensor dw) {
  grouped_matmul(run, Transpose::kNT, a, w, offsets, c);
  grouped_matmul(run, Transpose::kNN, b, w, offsets, d);
  grouped_matmul_tn(run, b, a, offsets, dw);
}

struct Exact {
  template <typename T>
  Exact(const Case& size, const Products<T>& o)
      : c(o.c.shape), d(o.d.shape), dw(o.dw.template as<double>()) {
    for (std::int64_t i = 0; i < size.rows; ++i) {
      const std::int64_t g = size.group_of(i);
      for (std::int64_t n = 0; g >= 0 && n < size.out; ++n) {
        for (std::int64_t k = 0; k < size.in; ++k) {
          const std::int64_t at = (g * size.out + n) * size.in + k;
          const double x = test::number<double>(o.a[i * size.in + k]);
          const double y = test::number<double>(o.b[i * size.out + n]);
          const double weight = test::number<double>(o.w[at]);
          c[i * size.out + n] += x * weight;
          d[i * size.in + k] += y * weight;
          dw[at] += x * y;
        }
      }
    }
  }
  OwnedTensor<double> c, d, dw;
};

// max |a - b|, beyond one rounding where `a` is bf16.
double error(const OwnedTensor<float>& a, const OwnedTensor<double>& b) {
  return test::max_abs_difference(a, b);
}
double error(const OwnedTensor<Bf16>& a, const OwnedTensor<double>& b) {
  return test::max_error_beyond_rounding(a, b);
}

// `kernel` is what must serve: "product_tiles" or "grouped_matmul_mma".
template <typename T>
void check(const Case& c, const char* kernel) {
  SCOPED_TRACE(fmt::format("{} rows of {} groups, {} x {}", c.rows, c.groups(), c.out, c.in));
  const Products<T> start = make<T>(c);
  const bool has_products = std::string(kernel) == "grouped_matmul_mma";
  const Products<T> got = test::in_every_order(
      start,
      [&](Gpu& gpu, Products<T>& o) {
        use(gpu.run, gpu(o.offsets), gpu(o.a), gpu(o.b), gpu(o.w), gpu(o.c), gpu(o.d), gpu(o.dw));
        gpu.finish();
        if (!gpu.is_fake()) return;  // which kernels ran is not told
        EXPECT_EQ(gpu.device().totals().at(kernel).launches, 3);
      },
      kDiffers, has_products);
  const Exact exact(c, start);
  // Sums of at most 200 terms below 1, each added with half an eps of a sum that stays below 16.
  constexpr double kSums = 200 * 16 * 0x1p-24;
  EXPECT_LE(error(got.c, exact.c), kSums);
  EXPECT_LE(error(got.d, exact.d), kSums);
  EXPECT_LE(error(got.dw, exact.dw), kSums);
}

// Groups of no row, of one, of few, of more than a tile has; rows left over and none.
TEST(CudaGroupedMatmul, IsEachGroupsProductInTiles) {
  const Case sizes[] = {{{0, 0, 1, 7, 90, 103}, 110, 33, 70},
                        {{0, 66, 67}, 67, 65, 17},
                        {{0, 0}, 3, 5, 2},
                        {many_groups(), 25, 3, 5}};
  for (const Case& c : sizes) check<float>(c, "product_tiles");
  check<Bf16>(sizes[0], "product_tiles");
  check<Bf16>(sizes[1], "product_tiles");
}

TEST(CudaGroupedMatmul, IsEachGroupsProductWithTensorCores) {
  const char* mma = "grouped_matmul_mma";
  check<Bf16>({{0, 0, 1, 7, 40, 53}, 60, 24, 72}, mma);
  check<Bf16>({{0, 17, 20}, 20, 136, 8}, mma);
  check<Bf16>({{0, 64, 64}, 64, 64, 64}, mma);  // all of a buffer
  check<Bf16>({many_groups(), 25, 8, 16}, mma);
  // Tiles of 128 rows, and for gradients too.
  check<Bf16>({{0, 131, 140}, 150, 72, 136}, mma);
  check<Bf16>({{0, 70}, 70, 200, 40}, mma);
  check<Bf16>({{0, 130}, 130, 200, 200}, mma);  // longer than all buffers
}

// How large tiles are hangs on the mean group; that must change no bit.
TEST(CudaGroupedMatmul, TilesOfEitherSizeGiveTheSameBits) {
  const Case few = {{0, 70, 70}, 100, 16, 40}, many = {{0, 70, 70}, 130, 16, 40};
  const auto product = [](const Case& c) {
    Products<Bf16> o = make<Bf16>(c);
    Gpu gpu;
    grouped_matmul(gpu.run, Transpose::kNT, gpu(o.a), gpu(o.w), gpu(o.offsets), gpu(o.c));
    gpu.finish();
    o.c.values.resize(70 * 16);
    return o.c.values;
  };
  EXPECT_TRUE(product(few) == product(many));
}

// A GPU's sums are its own, but the same each time.
TEST(RealGpuGroupedMatmul, MatchesDoubleAHundredTimes) {
  if (!test::has_real_gpu()) GTEST_SKIP() << "no GPU, or built without nvcc";
  const Case c = {{0, 131, 140, 390}, 400, 264, 520};
  const auto start = make<Bf16>(c);
  auto first = start;
  for (int turn = 0; turn < 100; ++turn) {
    auto now = start;
    Gpu gpu(test::kRealGpu);
    use(gpu.run, gpu(now.offsets), gpu(now.a), gpu(now.b), gpu(now.w), gpu(now.c), gpu(now.d),
        gpu(now.dw));
    gpu.finish();
    if (turn == 0) first = now;
    ASSERT_TRUE(now == first) << "turn " << turn;
  }
  const Exact exact(c, start);
  constexpr double kSums = 520 * 32 * 0x1p-24;
  EXPECT_LE(error(first.c, exact.c), kSums);
  EXPECT_LE(error(first.d, exact.d), kSums);
  EXPECT_LE(error(first.dw, exact.dw), kSums);
}

struct Mixed {
  OwnedTensor<float> a;  // dlogits
  OwnedTensor<Bf16> weight, x, dx;
  OwnedTensor<float> dweight;
  bool operator==(const Mixed&) const = default;
};

// The router's gradients: logits are f32 where weights and activations are bf16. `launches` is of
// tensor cores, of two.
void check_mixed(std::int64_t rows, std::int64_t experts, std::int64_t width, bool accumulate,
                 std::uint64_t launches) {
  SCOPED_TRACE(fmt::format("{} rows, {} experts, {} wide", rows, experts, width));
  const Mixed start = {random_tensor<float>({rows, experts}, 1),
                       random_tensor<float>({experts, width}, 2).as<Bf16>(),
                       random_tensor<float>({rows, width}, 3).as<Bf16>(),
                       random_tensor<float>({rows, width}, 4).as<Bf16>(),
                       random_tensor<float>({experts, width}, 5)};
  const Mixed got = test::in_every_order(
      start,
      [&](Gpu& gpu, Mixed& o) {
        const Tensor a = gpu(o.a);
        matmul(gpu.run, Transpose::kNN, a, gpu(o.weight), gpu(o.dx), {}, accumulate);
        matmul(gpu.run, Transpose::kTN, a, gpu(o.x), gpu(o.dweight), {}, accumulate);
        gpu.finish();
        if (!gpu.is_fake()) return;
        const auto totals = gpu.device().totals();
        const auto found = totals.find("mixed_matmul_mma");
        EXPECT_EQ(found == totals.end() ? 0 : found->second.launches, launches);
      },
      kDiffers, launches > 0);
  auto dx = start.dx.as<double>();
  auto dweight = start.dweight.as<double>();
  if (!accumulate) {
    std::fill(dx.values.begin(), dx.values.end(), 0.0);
    std::fill(dweight.values.begin(), dweight.values.end(), 0.0);
  }
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t e = 0; e < experts; ++e) {
      const double factor = start.a[t * experts + e];
      for (std::int64_t c = 0; c < width; ++c) {
        dx[t * width + c] += factor * test::number<double>(start.weight[e * width + c]);
        dweight[e * width + c] += factor * test::number<double>(start.x[t * width + c]);
      }
    }
  }
  const double sums = static_cast<double>(std::max<std::int64_t>(rows, 70)) * 16 * 0x1p-24;
  EXPECT_LE(test::max_error_beyond_rounding(got.dx, dx), sums);
  EXPECT_LE(test::max_abs_difference(got.dweight, dweight), sums);
}

TEST(CudaMixedMatmul, MatchesDoubleInTiles) {
  check_mixed(70, 5, 67, true, 0);
}

// More rows than a block's buffers hold; tiles that are cut in each direction, and that are not.
TEST(CudaMixedMatmul, MatchesDoubleWithTensorCores) {
  check_mixed(330, 36, 72, true, 2);
  check_mixed(70, 132, 8, false, 2);
  check_mixed(64, 32, 64, true, 2);
  check_mixed(3, 4, 8, false, 2);
}

}  // namespace
}  // namespace atl::ops
