// Norms and column sums on the fake GPU against ref in double, in every order the same bits.

#include "atoll/ops/norm/norm.h"

#include <gtest/gtest.h>

#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/matmul/ref.h"
#include "atoll/ops/norm/ref.h"
#include "atoll/ops/norm/ref_qk_norm.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

constexpr double kEps = 1e-5;
const RmsScale kScale = {kEps, 0.5};

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

// What storing a result of T rounds by; sums of n terms round as a random walk of f32 units.
template <typename T>
double tolerance(std::int64_t n) {
  const double sums = 0x1p-23 * (10 + 2 * std::sqrt(static_cast<double>(n)));
  return std::is_same_v<T, Bf16> ? 0x1p-8 + sums : sums;
}

template <typename T>
double error(const OwnedTensor<T>& got, const OwnedTensor<double>& exact) {
  return test::max_abs_difference(got, exact) / std::max(1.0, test::max_abs(exact));
}

// T of activations, A of statistics and of weight gradients.
template <typename T, typename A>
struct Norm {
  Norm(std::int64_t rows, std::int64_t width)
      : x(random_tensor<T>({rows, width}, 1)),
        weight(random_tensor<T>({width}, 2)),
        bias(random_tensor<T>({width}, 3)),
        dy(random_tensor<T>({rows, width}, 4)),
        past(random_tensor<T>({rows, width}, 7)),
        y({rows, width}, test::number<T>(std::nanf(""))),
        dx(y),
        mean({rows}, A(1e30)),
        rstd(mean),
        dweight(random_tensor<A>({width}, 5)),
        dbias(random_tensor<A>({width}, 6)) {}

  template <typename U>
  explicit Norm(const Norm<U, float>& from)
      : x(from.x.template as<T>()),
        weight(from.weight.template as<T>()),
        bias(from.bias.template as<T>()),
        dy(from.dy.template as<T>()),
        past(from.past.template as<T>()),
        y(from.x.shape),
        dx(from.x.shape),
        mean(from.mean.shape),
        rstd(from.mean.shape),
        dweight(from.dweight.template as<A>()),
        dbias(from.dbias.template as<A>()) {}

  bool operator==(const Norm&) const = default;
  /// Room for what a backward pass leaves.
  OwnedTensor<A> sums(int num_sums) const {
    return OwnedTensor<A>(norm_sums_spec({dtype_of<T>(), x.shape}, num_sums).shape, A(1e30));
  }

  OwnedTensor<T> x, weight, bias, dy, past, y, dx;
  OwnedTensor<A> mean, rstd, dweight, dbias;
};

template <typename T>
void expect_near(const Norm<T, float>& got, const Norm<double, double>& exact, bool is_layer) {
  const std::int64_t rows = got.x.shape.dim(0), width = got.x.shape.dim(1);
  // A row of nearly equal elements has a large rstd, which amplifies what rounding x - mean left.
  const double amplified = std::max(1.0, test::max_abs(exact.rstd));
  EXPECT_LE(error(got.y, exact.y), amplified * tolerance<T>(width)) << rows << " x " << width;
  EXPECT_LE(error(got.rstd, exact.rstd), amplified * tolerance<float>(width));
  EXPECT_LE(error(got.dx, exact.dx), amplified * tolerance<T>(width)) << rows << " x " << width;
  EXPECT_LE(error(got.dweight, exact.dweight), amplified * tolerance<float>(rows));
  if (!is_layer) return;
  EXPECT_LE(error(got.mean, exact.mean), tolerance<float>(width));
  EXPECT_LE(error(got.dbias, exact.dbias), tolerance<float>(rows));
}

// Rows and columns that fill no warp, several, whole packs and not, and not all packs of a thread;
// teams of one warp, two and three, several blocks of rows, the last of them short; rows too wide
// for a team.
const std::pair<std::int64_t, std::int64_t> kShapes[] = {{1, 1},    {3, 17},  {5, 64},   {37, 33},
                                                         {6, 264},  {70, 8},  {38, 520}, {9, 1032},
                                                         {2, 2600}, {1, 8200}};

template <typename T>
void check_norms() {
  for (const auto& [rows, width] : kShapes) {
    const Norm<T, float> start(rows, width);
    const auto layer = test::in_every_order(
        start,
        [](Gpu& gpu, Norm<T, float>& n) {
          const Tensor x = gpu(n.x), w = gpu(n.weight), mean = gpu(n.mean), rstd = gpu(n.rstd);
          const Tensor dy = gpu(n.dy);
          Run run = gpu.run;
          const Tensor sums = run.take_scratch(norm_sums_spec(x.spec(), 2));
          layer_norm_forward(gpu.run, kEps, x, w, gpu(n.bias), gpu(n.y), mean, rstd);
          layer_norm_backward(gpu.run, x, w, mean, rstd, dy, gpu(n.past), gpu(n.dx), sums);
          add_norm_sums(gpu.run, n.x.shape.dim(0), sums, gpu(n.dweight), gpu(n.dbias));
        },
        kDiffers);
    Norm<double, double> exact(start);
    ref::layer_norm_forward<double>(kEps, exact.x, exact.weight, exact.bias, exact.y, exact.mean,
                                    exact.rstd);
    ref::layer_norm_backward_input<double>(exact.x, exact.weight, exact.mean, exact.rstd, exact.dy,
                                           exact.dx, exact.past);
    ref::layer_norm_backward_weight<double>(exact.x, exact.mean, exact.rstd, exact.dy,
                                            exact.dweight, exact.dbias);
    expect_near(layer, exact, true);

    const auto rms = test::in_every_order(
        start,
        [](Gpu& gpu, Norm<T, float>& n) {
          const Tensor x = gpu(n.x), w = gpu(n.weight), rstd = gpu(n.rstd), dx = gpu(n.dx);
          Run run = gpu.run;
          const Tensor sums = run.take_scratch(norm_sums_spec(x.spec(), 1));
          rms_norm_forward(gpu.run, kScale, x, w, gpu(n.y), rstd);
          copy(gpu.run, gpu(n.dy), dx);
          rms_norm_backward(gpu.run, kScale, x, w, rstd, dx, {}, dx, sums);
          add_norm_sums(gpu.run, n.x.shape.dim(0), sums, gpu(n.dweight));
        },
        kDiffers);
    exact = Norm<double, double>(start);
    ref::rms_norm_forward<double>(kScale, exact.x, exact.weight, exact.y, exact.rstd);
    ref::rms_norm_backward_input<double>(kScale, exact.x, exact.weight, exact.rstd, exact.dy,
                                         exact.dx);
    ref::rms_norm_backward_weight<double>(exact.x, exact.rstd, exact.dy, exact.dweight);
    expect_near(rms, exact, false);
  }
}

TEST(CudaNorm, MatchesRefInDouble) {
  check_norms<float>();
}
TEST(CudaNorm, MatchesRefInBf16) {
  check_norms<Bf16>();
}

// Frozen weights: the same dx, and nothing else is written.
TEST(CudaNorm, WithoutSumsLeavesTheSameGradient) {
  Norm<Bf16, float> n(38, 520), same = n;
  const auto backward = [](Norm<Bf16, float>& at, bool with_sums) {
    Gpu gpu;
    auto owed = at.sums(1);
    const Tensor x = gpu(at.x), w = gpu(at.weight), rstd = gpu(at.rstd);
    rms_norm_forward(gpu.run, kScale, x, w, gpu(at.y), rstd);
    rms_norm_backward(gpu.run, kScale, x, w, rstd, gpu(at.dy), gpu(at.past), gpu(at.dx),
                      with_sums ? gpu(owed) : Tensor());
    gpu.finish();
  };
  backward(n, true);
  backward(same, false);
  EXPECT_EQ(n.dx, same.dx);
}

// Rows are read once, and weights once for the rows of a block that a team goes through.
TEST(CudaNorm, MovesTheBytesThatItMust) {
  Gpu gpu;
  Norm<Bf16, float> n(64, 768);
  auto owed = n.sums(2);
  const Tensor x = gpu(n.x), w = gpu(n.weight), mean = gpu(n.mean), rstd = gpu(n.rstd);
  layer_norm_forward(gpu.run, kEps, x, w, gpu(n.bias), gpu(n.y), mean, rstd);
  layer_norm_backward(gpu.run, x, w, mean, rstd, gpu(n.dy), gpu(n.past), gpu(n.dx), gpu(owed));
  gpu.finish();
  const std::uint64_t row = 768 * 2;
  const auto forward = gpu.device().totals().at("layer_norm_forward");
  EXPECT_EQ(forward.traffic.written, 64 * (row + 8));
  // Eight blocks of eight teams of a row each.
  EXPECT_EQ(forward.traffic.read, 64 * row + 8 * 8 * 2 * row);
  const auto backward = gpu.device().totals().at("layer_norm_backward");
  // Two blocks of 32 rows. Each thread asks for the statistics of its row.
  EXPECT_EQ(backward.traffic.written, 64 * row + 2 * 2 * 768 * sizeof(float));
  EXPECT_EQ(backward.traffic.read, 64 * 3 * row + 64 * 32 * 2 * sizeof(float) + 2 * 8 * row);
}

template <typename T, typename A>
struct QkNorm {
  QkNorm(HeadLayout layout, std::int64_t rows)
      : x(random_tensor<T>({1, rows, layout.qkv_width()}, 1)),
        q_weight(random_tensor<T>({layout.head_dim}, 2)),
        k_weight(random_tensor<T>({layout.head_dim}, 3)),
        dy(random_tensor<T>({1, rows, layout.qkv_width()}, 4)),
        y(x.shape, test::number<T>(std::nanf(""))),
        rstd({1, rows, layout.num_heads + layout.num_kv_heads}),
        dweights({2, layout.head_dim}, std::numeric_limits<A>::quiet_NaN()) {}
  template <typename U>
  explicit QkNorm(const QkNorm<U, float>& from)
      : x(from.x.template as<T>()),
        q_weight(from.q_weight.template as<T>()),
        k_weight(from.k_weight.template as<T>()),
        dy(from.dy.template as<T>()),
        y(from.x.shape),
        rstd(from.rstd.shape),
        dweights(from.dweights.shape) {}

  bool operator==(const QkNorm&) const = default;
  OwnedTensor<T> x, q_weight, k_weight, dy, y;
  OwnedTensor<A> rstd, dweights;
};

template <typename T>
void check_qk_norm() {
  const std::pair<HeadLayout, std::int64_t> cases[] = {
      {{1, 1, 1}, 1}, {{2, 1, 6}, 5}, {{4, 2, 32}, 19}, {{3, 3, 80}, 20}};
  for (const auto& one : cases) {
    const HeadLayout heads = one.first;
    const std::int64_t rows = one.second;
    const QkNorm<T, float> start(heads, rows);
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, QkNorm<T, float>& n) {
          const Tensor x = gpu(n.x), q = gpu(n.q_weight), k = gpu(n.k_weight), rstd = gpu(n.rstd);
          const Tensor dy = gpu(n.dy);
          qk_norm_forward(gpu.run, heads, kScale, x, q, k, gpu(n.y), rstd);
          qk_norm_backward(gpu.run, heads, kScale, x, q, k, rstd, dy, dy, gpu(n.dweights));
        },
        kDiffers);
    QkNorm<double, double> exact(start);
    ref::qk_norm_forward<double>(heads, kScale, exact.x, exact.q_weight, exact.k_weight, exact.y,
                                 exact.rstd);
    ref::qk_norm_backward<double>(heads, kScale, exact.x, exact.q_weight, exact.k_weight,
                                  exact.rstd, exact.dy, exact.dy, exact.dweights);
    const double amplified = std::max(1.0, test::max_abs(exact.rstd));
    EXPECT_LE(error(got.y, exact.y), amplified * tolerance<T>(heads.head_dim));
    EXPECT_LE(error(got.dy, exact.dy), amplified * tolerance<T>(heads.head_dim));
    EXPECT_LE(error(got.rstd, exact.rstd), amplified * tolerance<float>(heads.head_dim));
    EXPECT_LE(error(got.dweights, exact.dweights),
              amplified * tolerance<float>(rows * heads.num_heads));
  }
}

TEST(CudaQkNorm, MatchesRefInDouble) {
  check_qk_norm<float>();
}
TEST(CudaQkNorm, MatchesRefInBf16) {
  check_qk_norm<Bf16>();
}

template <typename T>
struct ColumnSum {
  OwnedTensor<T> dy;
  OwnedTensor<float> dbias;
  bool operator==(const ColumnSum&) const = default;
};

template <typename T>
void check_column_sum() {
  for (const auto& [rows, width] : kShapes) {
    const ColumnSum<T> start{random_tensor<T>({rows, width}, 1), random_tensor<float>({width}, 2)};
    const auto got = test::in_every_order(
        start, [](Gpu& gpu, ColumnSum<T>& s) { column_sum(gpu.run, gpu(s.dy), gpu(s.dbias)); },
        kDiffers);
    const OwnedTensor<double> dy = start.dy.template as<double>();
    OwnedTensor<double> exact = start.dbias.template as<double>();
    ref::column_sum<double>(rows, width, dy.values.data(), exact.values.data());
    EXPECT_LE(error(got.dbias, exact), tolerance<float>(rows)) << rows << " x " << width;
  }
}

TEST(CudaColumnSum, MatchesRefInDouble) {
  check_column_sum<float>();
  check_column_sum<Bf16>();
}

}  // namespace
}  // namespace atl::ops
