#include "atoll/ops/matmul/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/matmul/cpu_dnnl.h"
#include "atoll/ops/matmul/cpu_tile_kernels.h"
#include "atoll/ops/matmul/cpu_tiled.h"
#include "atoll/ops/matmul/ref.h"
#include "atoll/ops/targets_testing.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

template <typename TA, typename TB, typename TC>
struct ProductOf {
  explicit ProductOf(const MatmulShape& s)
      : shape(s),
        a(random_tensor<TA>(s.transpose == Transpose::kTN ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1)),
        b(random_tensor<TB>(s.transpose == Transpose::kNT ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2)),
        bias(random_tensor<TB>({s.n}, 3)),
        before(random_tensor<TC>({s.m, s.n}, 4)) {}

  OwnedTensor<TC> compute(Run& run, bool with_bias, bool accumulate) {
    OwnedTensor<TC> c = before;
    matmul(run, shape.transpose, a, b, c, with_bias ? bias.view() : Tensor{}, accumulate);
    return c;
  }

  /// In f64; with `magnitude` of the absolute values, which is what rounding errors scale with.
  OwnedTensor<double> truth(bool with_bias, bool accumulate, bool magnitude) {
    const auto wide = [&](const auto& from) {
      OwnedTensor<double> to = from.template as<double>();
      if (magnitude) {
        for (double& value : to.values) value = std::abs(value);
      }
      return to;
    };
    OwnedTensor<double> c = wide(before);
    ThreadPool threads(1);
    ref::matmul<double>(threads, shape, wide(a).values.data(), wide(b).values.data(),
                        c.values.data(), with_bias ? wide(bias).values.data() : nullptr,
                        accumulate);
    return c;
  }

  MatmulShape shape;
  OwnedTensor<TA> a;
  OwnedTensor<TB> b;
  OwnedTensor<TB> bias;
  OwnedTensor<TC> before;
};
using Product = ProductOf<float, float, float>;

/// A sum of k products is off by about sqrt(k) eps of the sum of its magnitudes (Higham & Mary
/// 2019); 4 times that is beyond chance, and far below what one wrong or missing term does. Storing
/// it in bf16 rounds once more.
template <typename TA, typename TB, typename TC, typename Compute>
void expect_product(ProductOf<TA, TB, TC>& product, bool with_bias, bool accumulate,
                    Compute&& compute) {
  OwnedTensor<TC> c = product.before;
  compute(c);
  const OwnedTensor<double> truth = product.truth(with_bias, accumulate, false);
  const OwnedTensor<double> size = product.truth(with_bias, accumulate, true);
  const double eps = std::numeric_limits<float>::epsilon() / 2;
  const double bound = 4 * std::sqrt(static_cast<double>(product.shape.k) + 2) * eps;
  for (std::int64_t i = 0; i < c.size(); ++i) {
    const double rounding = std::is_same_v<TC, Bf16> ? test::bf16_half_ulp(truth[i]) : 0;
    ASSERT_LE(std::abs(test::number<double>(c[i]) - truth[i]), bound * size[i] + rounding)
        << "element " << i << " of transpose " << static_cast<int>(product.shape.transpose) << " M "
        << product.shape.m << " N " << product.shape.n << " K " << product.shape.k << " bias "
        << with_bias << " accumulate " << accumulate;
  }
}

template <typename TA, typename TB, typename TC>
void expect_product(ProductOf<TA, TB, TC>& product, Run& run, bool with_bias, bool accumulate) {
  expect_product(product, with_bias, accumulate,
                 [&](OwnedTensor<TC>& c) { c = product.compute(run, with_bias, accumulate); });
}

constexpr Transpose kAll[] = {Transpose::kNN, Transpose::kNT, Transpose::kTN};

TEST(Matmul, AgreesWithF64OnOddShapes) {
  TestRun run;
  const std::int64_t sizes[] = {1, 3, 17, 65, 129};
  int turn = 0;
  for (const Transpose transpose : kAll) {
    for (const std::int64_t m : sizes) {
      for (const std::int64_t n : sizes) {
        for (const std::int64_t k : sizes) {
          Product product({transpose, m, n, k});
          ++turn;  // all four combinations come round for every size
          expect_product(product, run, (turn & 1) != 0, (turn & 2) != 0);
        }
      }
    }
  }
}

TEST(Matmul, AgreesWithF64WhenCutAndRepacked) {
  TestRun run;
  for (const Transpose transpose : kAll) {
    for (const bool with_bias : {false, true}) {
      for (const bool accumulate : {false, true}) {
        Product product({transpose, 1000, 401, 65});  // tails in both directions, b repacked
        expect_product(product, run, with_bias, accumulate);
        Product narrow({transpose, 17, 1000, 129});
        expect_product(narrow, run, with_bias, accumulate);
      }
    }
  }
}

TEST(Matmul, AgreesWithF64ForFewRows) {
  TestRun run;
  for (std::int64_t m = 1; m <= 9; ++m) {
    for (const std::int64_t k : {5, 16, 100}) {
      Product product({Transpose::kNT, m, 67, k});
      expect_product(product, run, true, true);
      expect_product(product, run, false, false);
    }
  }
}

/// Calls fn(ProductOf<...>) for each mixture of f32 and bf16 operands that has a bf16.
template <typename Fn>
void for_mixtures(const MatmulShape& shape, Fn&& fn) {
  fn(ProductOf<Bf16, Bf16, Bf16>(shape));
  fn(ProductOf<Bf16, Bf16, float>(shape));
  fn(ProductOf<Bf16, float, Bf16>(shape));
  fn(ProductOf<Bf16, float, float>(shape));
  fn(ProductOf<float, Bf16, Bf16>(shape));
  fn(ProductOf<float, Bf16, float>(shape));
  fn(ProductOf<float, float, Bf16>(shape));
}

TEST(MatmulBf16, AgreesWithF64OnOddShapesRoundedOnce) {
  TestRun run;
  int turn = 0;
  for (const Transpose transpose : kAll) {
    for (const std::int64_t m : {1, 3, 17, 65}) {
      for (const std::int64_t n : {1, 17, 67}) {
        for (const std::int64_t k : {1, 5, 129}) {
          ++turn;
          for_mixtures({transpose, m, n, k}, [&](auto product) {
            expect_product(product, run, (turn & 1) != 0, (turn & 2) != 0);
          });
        }
      }
    }
  }
}

TEST(MatmulBf16, AgreesWithF64WhenCutInAllDirections) {
  TestRun run;
  for (const Transpose transpose : kAll) {
    // Tails in M and N, two panels of K, and a bf16 c that is rounded after the last of them.
    bool accumulate = false;
    for_mixtures({transpose, 270, 131, 530}, [&](auto product) {
      expect_product(product, run, true, accumulate);
      accumulate = !accumulate;
    });
    // Two blocks of rows share a repacked b, and the columns are cut.
    ProductOf<Bf16, Bf16, float> tall({transpose, 3841, 400, 9});
    expect_product(tall, run, false, true);
  }
}

TEST(MatmulBf16, FewRowsHaveTheBitsOfF32) {
  TestRun run;
  for (std::int64_t m = 1; m <= 9; m += 2) {
    ProductOf<Bf16, Bf16, float> narrow({Transpose::kNT, m, 67, 333});
    Product wide(narrow.shape);
    wide.a = narrow.a.as<float>();
    wide.b = narrow.b.as<float>();
    wide.bias = narrow.bias.as<float>();
    ProductOf<Bf16, Bf16, Bf16> stored(narrow.shape);
    const OwnedTensor<float> expected = wide.compute(run, true, false);
    if (m <= 8) {
      EXPECT_EQ(narrow.compute(run, true, false), expected) << m;
      EXPECT_EQ(stored.compute(run, true, false), expected.as<Bf16>()) << m;
    }
  }
}

TEST(MatmulBf16, ThreadCountChangesNoBit) {
  for (const Transpose transpose : kAll) {
    for (const MatmulShape& shape :
         {MatmulShape{transpose, 1300, 401, 129}, MatmulShape{transpose, 2, 1000, 700}}) {
      ProductOf<Bf16, Bf16, Bf16> product(shape);
      TestRun one(1);
      const OwnedTensor<Bf16> expected = product.compute(one, true, true);
      for (const int threads : {2, 3}) {
        TestRun run(threads);
        EXPECT_TRUE(product.compute(run, true, true) == expected) << threads << " threads";
      }
    }
  }
}

TEST(MatmulBf16, NeedsNoScratch) {
  ProductOf<Bf16, Bf16, Bf16> product({Transpose::kNN, 600, 130, 67});
  const Spec a = product.a.view().spec();
  EXPECT_EQ(matmul_scratch_bytes(Transpose::kNN, a, product.b.view().spec()), 0U);
  TestRun run(2, 0);
  expect_product(product, run, false, false);
}

TEST(MatmulBf16, AnEmptySumLeavesTheBias) {
  TestRun run;
  OwnedTensor<Bf16> x({9, 0});
  OwnedTensor<Bf16> weight({2, 0});
  OwnedTensor<Bf16> bias({2}, to_bf16(0.5F));
  OwnedTensor<Bf16> c({9, 2}, to_bf16(9.0F));
  matmul(run, Transpose::kNT, x, weight, c, bias);
  EXPECT_THAT(c.values, testing::Each(to_bf16(0.5F)));
}

TEST(MatmulBf16, RefusesF64AmongOthers) {
  TestRun run;
  OwnedTensor<Bf16> a({2, 3});
  OwnedTensor<double> b({3, 4});
  OwnedTensor<float> c({2, 4});
  EXPECT_THROW(matmul(run, Transpose::kNN, a, b, c), Error);
  EXPECT_THROW(matmul(run, Transpose::kNN, a, a, b), Error);
}

class TiledMatmul : public test::EachTarget {
 protected:
  void TearDown() override {
    cpu::reset_tile();
    EachTarget::TearDown();
  }
};

void agree_with_f64_on_whatever_tiles_are_left() {
  TestRun run;
  const std::int64_t sizes[] = {1, 13, 29, 33, 170};
  int turn = 0;
  for (const Transpose transpose : kAll) {
    for (const std::int64_t m : sizes) {
      for (const std::int64_t n : sizes) {
        for (const std::int64_t k : {1, 7, 780}) {  // 780 is two stretches
          ++turn;
          Product product({transpose, m, n, k});
          const bool accumulate = (turn & 2) != 0;
          const bool with_bias = (turn & 1) != 0;
          expect_product(product, with_bias, accumulate, [&](OwnedTensor<float>& c) {
            cpu::multiply_tiled(
                run.run,
                {product.shape, product.a.values.data(), product.b.values.data(), c.values.data(),
                 with_bias ? product.bias.values.data() : nullptr, accumulate});
          });
        }
      }
    }
  }
}

TEST_P(TiledMatmul, AgreesWithF64OnWhateverTilesAreLeft) {
  for (const cpu::Tile tile : {cpu::Tile::kTall, cpu::Tile::kWide}) {
    cpu::set_tile(tile);
    agree_with_f64_on_whatever_tiles_are_left();
  }
}

TEST_P(TiledMatmul, TheTileChangesNoBit) {
  for (const Transpose transpose : kAll) {
    for (const MatmulShape& shape :
         {MatmulShape{transpose, 300, 205, 790}, MatmulShape{transpose, 129, 1'000, 65},
          // Rows of a that all meet in one place of the first-level cache.
          MatmulShape{transpose, 130, 96, 2'048}}) {
      Product product(shape);
      TestRun run(2);
      cpu::set_tile(cpu::Tile::kTall);
      const OwnedTensor<float> tall = product.compute(run, true, true);
      cpu::set_tile(cpu::Tile::kWide);
      EXPECT_TRUE(product.compute(run, true, true) == tall)
          << "M " << shape.m << " N " << shape.n << " K " << shape.k;
    }
  }
}

TEST(Tile, TheFasterOneIsTaken) {
  cpu::reset_tile();
  const bool wide = cpu::wide_tile_speedup() >= cpu::kWideTileWorthIt;
  EXPECT_EQ(&cpu::tile_kernels(), &cpu::tile_kernels(wide ? cpu::Tile::kWide : cpu::Tile::kTall));
  cpu::set_tile(wide ? cpu::Tile::kTall : cpu::Tile::kWide);
  EXPECT_EQ(&cpu::tile_kernels(), &cpu::tile_kernels(wide ? cpu::Tile::kTall : cpu::Tile::kWide));
  cpu::reset_tile();
}

TEST_P(TiledMatmul, ThreadCountChangesNoBit) {
  for (const Transpose transpose : kAll) {
    for (const MatmulShape& shape :
         {MatmulShape{transpose, 300, 65, 790}, MatmulShape{transpose, 129, 300, 10},
          // Long sums over an a of which threads take a slab at a time.
          MatmulShape{transpose, 200, 32, 11'000}}) {
      Product product(shape);
      TestRun one(1);
      const OwnedTensor<float> expected = product.compute(one, true, true);
      for (const int threads : {2, 3, 7}) {
        TestRun run(threads);
        EXPECT_TRUE(product.compute(run, true, true) == expected)
            << threads << " threads, M " << shape.m;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TiledMatmul, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         test::target_name);

TEST(Matmul, ThreadCountChangesNoBit) {
  for (const Transpose transpose : kAll) {
    for (const MatmulShape& shape :
         {MatmulShape{transpose, 1000, 401, 129}, MatmulShape{transpose, 129, 1000, 65},
          MatmulShape{transpose, 2, 1000, 700}}) {
      Product product(shape);
      TestRun one(1);
      const OwnedTensor<float> expected = product.compute(one, true, true);
      for (const int threads : {2, 3, 4}) {
        TestRun run(threads);
        EXPECT_TRUE(product.compute(run, true, true) == expected)
            << threads << " threads, M " << shape.m;
      }
    }
  }
}

TEST(Matmul, ServesF64AndFoldsLeadingDims) {
  TestRun run;
  auto a = random_tensor<double>({2, 3, 5}, 1);
  auto b = random_tensor<double>({4, 5}, 2);
  OwnedTensor<double> c({2, 3, 4});
  matmul(run, Transpose::kNT, a, b, c);
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < 5; ++k) sum += a[i * 5 + k] * b[j * 5 + k];
      EXPECT_NEAR(c[i * 4 + j], sum, 1e-14);
    }
  }
}

TEST(Matmul, AnEmptySumLeavesTheBias) {
  TestRun run;
  OwnedTensor<float> nothing({3, 0});
  OwnedTensor<float> bias({2}, 0.5F);
  OwnedTensor<float> c({3, 2}, 9.0F);
  MatmulArgs args = {{Transpose::kNT, 3, 2, 0}, nothing, nothing, c, bias, false};
  EXPECT_THAT(cpu::matmul_dnnl(run, args), testing::NotNull());
  ThreadPool threads(1);
  ref::matmul<float>(threads, args.shape, nullptr, nullptr, c.values.data(), bias.values.data(),
                     false);
  EXPECT_THAT(c.values, testing::Each(0.5F));
}

TEST(Matmul, AResidualOnACpuIsAddedWithTheBitsOfTwoOps) {
  TestRun run(2, 1 << 20);
  const auto check = [&]<typename T>(T) {
    auto a = random_tensor<T>({37, 40}, 1), b = random_tensor<T>({50, 40}, 2);
    auto bias = random_tensor<T>({50}, 3), residual = random_tensor<T>({37, 50}, 4);
    OwnedTensor<T> together({37, 50}), apart({37, 50});
    matmul_add(run, Transpose::kNT, a, b, residual, together, bias);
    matmul(run, Transpose::kNT, a, b, apart, bias);
    EXPECT_FALSE(together == apart);
    add(run, residual, apart, apart);
    EXPECT_EQ(together, apart);
  };
  check(float{});
  check(Bf16{});
  check(double{});
}

TEST(Matmul, ScratchCountedBeforehandIsEnough) {
  for (const Transpose transpose : kAll) {
    for (const std::int64_t m : {127, 128, 513, 1500}) {
      Product product({transpose, m, 130, 67});
      const std::size_t bytes =
          matmul_scratch_bytes(transpose, product.a.view().spec(), product.b.view().spec());
      TestRun run(2, bytes);
      expect_product(product, run, false, false);
    }
  }
}

TEST(Matmul, RefusesShapesThatDoNotFit) {
  TestRun run;
  OwnedTensor<float> a({2, 3});
  OwnedTensor<float> b({4, 5});
  OwnedTensor<float> c({2, 5});
  EXPECT_THROW(matmul(run, Transpose::kNN, a, b, c), Error);
  EXPECT_THROW(matmul(run, Transpose::kNT, a, b, c), Error);
  OwnedTensor<float> fits({3, 4});
  EXPECT_THROW(matmul(run, Transpose::kNN, a, fits, c), Error);
  OwnedTensor<float> good({3, 5});
  EXPECT_THROW(matmul_add(run, Transpose::kNN, a, good, fits, c), Error);
}

TEST(ColumnSum, AddsTheSumOfEachColumn) {
  for (const std::int64_t rows : {1, 3, 65, 1000}) {
    for (const std::int64_t n : {1, 17, 129}) {
      auto dy = random_tensor<float>({rows, n}, 1);
      auto before = random_tensor<float>({n}, 2);
      OwnedTensor<double> truth = before.as<double>();
      ref::column_sum<double>(rows, n, dy.as<double>().values.data(), truth.values.data());
      OwnedTensor<float> first = before;
      for (const int threads : {1, 3}) {
        TestRun run(threads, column_sum_scratch_bytes(dy.view().spec()));
        std::fill(run.run.scratch.begin(), run.run.scratch.end(), std::byte{0xff});
        OwnedTensor<float> sum = before;
        column_sum(run, dy, sum);
        // sqrt(rows) eps of a sum of magnitudes of at most rows + 1, each half on average.
        const double bound = 4 * std::sqrt(rows + 2.0) * 6e-8 * (rows + 1.0);
        EXPECT_LE(test::max_abs_difference(sum, truth), bound) << rows << " x " << n;
        if (threads == 1) first = sum;
        EXPECT_TRUE(sum == first);
      }
    }
  }
}

// The pass that makes the rows leaves sums: what comes of them is what a pass of its own gives.
TEST(ColumnSum, InTwoPartsHasTheSameBits) {
  for (const std::int64_t rows : {1, 65, 5000}) {
    TestRun run(2, 1 << 20);
    auto x = random_tensor<Bf16>({rows, 19}, 1), dy = random_tensor<Bf16>({rows, 19}, 2);
    OwnedTensor<Bf16> dx({rows, 19}), alone({rows, 19});
    OwnedTensor<float> sums(column_sums_spec(dx.view().spec()).shape, 1e30F);
    auto whole = random_tensor<float>({19}, 3), parts = whole;
    gelu_backward(run, Gelu::kTanh, x, dy, dx, {}, sums);
    gelu_backward(run, Gelu::kTanh, x, dy, alone);
    EXPECT_EQ(dx, alone);
    add_column_sums(run, sums, parts);
    column_sum(run, dx, whole);
    EXPECT_EQ(parts, whole);
  }
}

TEST(ColumnSum, OfBf16HasTheBitsOfF32) {
  for (const std::int64_t rows : {1, 65, 1000}) {
    for (const int threads : {1, 2, 3}) {
      auto dy = random_tensor<Bf16>({rows, 37}, 1);
      auto wide = dy.as<float>();
      auto sum = random_tensor<float>({37}, 2);
      auto expected = sum;
      TestRun run(threads, column_sum_scratch_bytes(dy.view().spec()));
      column_sum(run, dy, sum);
      column_sum(run, wide, expected);
      EXPECT_EQ(sum, expected) << rows;
    }
  }
}

}  // namespace
}  // namespace atl::ops
