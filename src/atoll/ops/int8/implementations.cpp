#include "atoll/ops/int8/int8.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/ops/implementations.h"
#include "atoll/ops/int8/cpu.h"
#include "atoll/ops/int8/cpu_rounded.h"
#include "atoll/ops/int8/cuda_narrow_weights.h"
#include "atoll/ops/int8/ref.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct Args {
  Tensor x, y, bias;
  Int8Matrix w;
  std::int64_t rows() const { return x.shape().num_rows(); }
};

void check_matrix(const char* op, const Int8Matrix& w) {
  check_spec(op, int8_values_spec(w.values.shape()), {w.values});
  check_spec(op, int8_scales_spec(w.values.shape()), {w.scales});
}

Declined few_rows(Run& run, const Args& args) {
  if (args.rows() > cpu::kInt8FewRows && !run.row_stable) return "more than 8 rows";
  return serve_host(run, [&] { cpu::int8_few_rows(run, args.x, args.w, args.y, args.bias); });
}

// Rows of w that are widened at a time: 4 MiB of f32, which stay in the cache until they are used.
std::int64_t widened_rows(const Shape& w) {
  constexpr std::int64_t kElements = std::int64_t{1} << 20;
  return std::clamp<std::int64_t>(kElements / (w.dim(1) + 1), 1,
                                  std::max<std::int64_t>(w.dim(0), 1));
}

// A block of columns of y at a time, each an ordinary product with widened weights.
Declined widened(Run& run, const Args& args) {
  return serve_host(run, [&] {
    const std::int64_t m = args.rows();
    const std::int64_t n = args.w.values.dim(0);
    const std::int64_t k = args.w.values.dim(1);
    const std::int64_t step = widened_rows(args.w.values.shape());
    for (std::int64_t begin = 0; begin < n; begin += step) {
      const std::int64_t end = std::min(begin + step, n);
      Run inner = run;
      const Tensor weights = inner.take_scratch({Dtype::kF32, {end - begin, k}});
      const Tensor block = inner.take_scratch({Dtype::kF32, {m, end - begin}});
      cpu::int8_widen(inner, args.w, begin, end, weights);
      const Tensor bias = args.bias.defined() ? args.bias.rows(begin, end) : Tensor();
      matmul(inner, Transpose::kNT, args.x.reshaped({m, k}), weights, block, bias);
      for (std::int64_t i = 0; i < m; ++i) {
        std::copy_n(block.data<float>() + i * (end - begin), end - begin,
                    args.y.data<float>() + i * n + begin);
      }
    }
  });
}

Declined reference(Run& run, const Args& args) {
  return serve_host(run, [&] {
    ref::matmul_int8<float>(run.threads(), args.rows(), args.x.data<float>(), args.w,
                            args.bias.defined() ? args.bias.data<float>() : nullptr,
                            args.y.data<float>());
  });
}

constexpr Implementation<Args> kMatmulInt8[] = {
    {"few_rows", few_rows},
    {"widened", widened},
    {"cuda", [](Run& run, const Args& a) { return cuda::matmul_int8(run, a.x, a.w, a.y, a.bias); }},
    {"ref", reference},
};

template <Int8Arithmetic kArithmetic>
Declined rounded(Run& run, const Args& args) {
  if (kArithmetic > int8_arithmetic(args.rows())) return "not chosen";
  Declined reason = kServed;
  const Declined host = serve_host(run, [&] {
    reason = cpu::int8_rounded(run, kArithmetic, args.x, args.w, args.y, args.bias);
  });
  return host != kServed ? host : reason;
}

Declined rounded_reference(Run& run, const Args& args) {
  return serve_host(run, [&] {
    ref::matmul_rounded<float>(run.threads(), args.rows(), args.x.data<float>(), args.w,
                               args.bias.defined() ? args.bias.data<float>() : nullptr,
                               args.y.data<float>());
  });
}

constexpr Implementation<Args> kMatmulRounded[] = {
    {"amx", rounded<Int8Arithmetic::kAmx>},
    {"vnni", rounded<Int8Arithmetic::kVnni>},
    {"vector", rounded<Int8Arithmetic::kVector>},
    {"cuda",
     [](Run& run, const Args& a) { return cuda::matmul_rounded(run, a.x, a.w, a.y, a.bias); }},
    {"ref", rounded_reference},
};

struct Lookup {
  Tensor tokens, y;
  Int8Matrix table;
};

void look_up(Run& run, const Lookup& args) {
  const std::int64_t count = args.tokens.num_elements();
  const std::int64_t num_rows = args.table.values.dim(0);
  const std::int32_t* ids = args.tokens.data<std::int32_t>();
  const Tensor rows = args.y.reshaped({count, args.table.values.dim(1)});
  for (std::int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= num_rows) {
      throw damaged_error("token {} at position {} is outside the vocabulary of {}", ids[i], i,
                          num_rows);
    }
    cpu::int8_widen(run, args.table, ids[i], ids[i] + 1, rows.rows(i, i + 1));
  }
}

constexpr Implementation<Lookup> kEmbeddingInt8[] = {
    {"rows", [](Run& run, const Lookup& a) { return serve_host(run, [&] { look_up(run, a); }); }},
    {"cuda",
     [](Run& run, const Lookup& a) { return cuda::embedding_int8(run, a.tokens, a.table, a.y); }},
};

// Rounds one group; false when an element is not finite. Adds to the sums of squares.
bool round_group(const float* x, std::int64_t count, std::int8_t* values, float* scale,
                 RoundingError& sums) {
  float largest = 0;
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(x[i]);
    finite &= std::isfinite(magnitude);
    largest = std::max(largest, magnitude);
  }
  if (!finite) return false;
  *scale = largest / 127.0F;
  for (std::int64_t i = 0; i < count; ++i) {
    // Of subnormal groups the factor is coarse, or zero: then they are zeros.
    const float ratio = *scale > 0 ? x[i] / *scale : 0.0F;
    const float q = std::clamp(std::nearbyintf(ratio), -127.0F, 127.0F);
    values[i] = static_cast<std::int8_t>(q);
    const double error = static_cast<double>(x[i]) - static_cast<double>(q) * *scale;
    sums.error += error * error;
    sums.square += static_cast<double>(x[i]) * x[i];
  }
  return true;
}

}  // namespace

Spec int8_values_spec(const Shape& shape) {
  ATOLL_CHECK(shape.rank() == 2, "{}", shape.to_string());
  return {Dtype::kU8, shape};
}

Spec int8_scales_spec(const Shape& shape) {
  ATOLL_CHECK(shape.rank() == 2, "{}", shape.to_string());
  return {Dtype::kF32, {shape.dim(0), (shape.dim(1) + kInt8Group - 1) / kInt8Group}};
}

RoundingError round_to_int8(Run& run, Tensor x, const Int8Matrix& out) {
  check_matrix("round_to_int8", out);
  check_spec("round_to_int8", {Dtype::kF32, out.values.shape()}, {x});
  const std::int64_t n = x.dim(0);
  const std::int64_t k = x.dim(1);
  const std::int64_t groups = out.scales.dim(1);
  const float* from = x.data<float>();
  auto* values = reinterpret_cast<std::int8_t*>(out.values.data<std::uint8_t>());
  std::vector<RoundingError> of_rows(static_cast<std::size_t>(n));
  run.threads().run_chunked(
      n, std::max<std::int64_t>(1, 65536 / (k + 1)), [&](auto begin, auto end) {
        for (std::int64_t row = begin; row < end; ++row) {
          RoundingError& sums = of_rows[static_cast<std::size_t>(row)];
          for (std::int64_t g = 0; g < groups; ++g) {
            const std::int64_t at = row * k + g * kInt8Group;
            const std::int64_t count = std::min(kInt8Group, k - g * kInt8Group);
            if (!round_group(from + at, count, values + at,
                             out.scales.data<float>() + row * groups + g, sums)) {
              throw make_error(ErrorKind::kNumeric, "row {} has a weight that is not finite", row);
            }
          }
        }
      });
  RoundingError total;
  for (const RoundingError& row : of_rows) {
    total.error += row.error;
    total.square += row.square;
  }
  return total;
}

void matmul_int8(Run& run, Tensor x, const Int8Matrix& w, Tensor y, Tensor bias) {
  check_matrix("matmul_int8", w);
  const Args args = {x, y, bias, w};
  const std::int64_t n = w.values.dim(0);
  ATOLL_CHECK(x.dim(-1) == w.values.dim(1) && y.dim(-1) == n, "matmul_int8 of {} and {} into {}",
              x.spec().to_string(), w.values.spec().to_string(), y.spec().to_string());
  check_size("matmul_int8", Dtype::kF32, args.rows() * w.values.dim(1), {x});
  check_size("matmul_int8", Dtype::kF32, args.rows() * n, {y});
  if (bias.defined()) check_size("matmul_int8", Dtype::kF32, n, {bias});
  if (args.rows() == 0 || n == 0) return;
  if (int8_arithmetic(args.rows()) != Int8Arithmetic::kF32) {
    dispatch<Args>("matmul_int8", kMatmulRounded, run, args);
  } else {
    dispatch<Args>("matmul_int8", kMatmulInt8, run, args);
  }
}

std::size_t matmul_int8_scratch_bytes(const Spec& x, const Shape& w) {
  const std::int64_t m = x.shape.num_rows();
  // Whatever int8_arithmetic() says: a plan outlives the choice.
  const std::size_t rounded = std::max(cpu::int8_rounded_scratch_bytes(m, w.dim(1)),
                                       cuda::narrow_weights_scratch_bytes(m, w));
  if (m <= cpu::kInt8FewRows) return rounded;
  const std::int64_t rows = widened_rows(w);
  const Spec weights = {Dtype::kF32, {rows, w.dim(1)}};
  const Spec flat = {Dtype::kF32, {m, w.dim(1)}};
  std::size_t products = matmul_scratch_bytes(Transpose::kNT, flat, weights);
  const std::int64_t rest = w.dim(0) % rows;
  if (rest > 0) {
    products = std::max(
        products, matmul_scratch_bytes(Transpose::kNT, flat, {Dtype::kF32, {rest, w.dim(1)}}));
  }
  return std::max(rounded, align_up(weights.bytes()) +
                               align_up(Spec{Dtype::kF32, {m, rows}}.bytes()) + products);
}

void embedding_int8(Run& run, Tensor tokens, const Int8Matrix& table, Tensor y) {
  check_matrix("embedding_int8", table);
  const std::int64_t count = tokens.num_elements();
  check_size("embedding_int8", Dtype::kI32, count, {tokens});
  check_size("embedding_int8", Dtype::kF32, count * table.values.dim(1), {y});
  dispatch<Lookup>("embedding_int8", kEmbeddingInt8, run, {tokens, y, table});
}

}  // namespace atl::ops
