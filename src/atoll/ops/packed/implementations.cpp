#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/packed/packed.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct Product {
  Tensor x, y, bias;
  const PackedMatrix& w;
  std::int64_t rows() const { return x.shape().num_rows(); }
};

// Rows that are widened at a time: 4 MiB of f32, which stay in the cache until they are used. A
// function of the shape alone, as the order of sums is.
std::int64_t tile_rows(const Shape& w) {
  constexpr std::int64_t kElements = std::int64_t{1} << 20;
  return std::clamp<std::int64_t>(kElements / (w.dim(1) + 1), 1,
                                  std::max<std::int64_t>(w.dim(0), 1));
}

// Columns [begin, end) of `wide`, (rows, N), as a tensor of their own, or back.
enum class Way { kOut, kIn };
void copy_columns(Run& run, Way way, const Tensor& wide, std::int64_t begin, std::int64_t end,
                  const Tensor& columns) {
  const std::int64_t n = wide.dim(1);
  const std::size_t size = dtype_size(wide.dtype());
  const std::size_t bytes = static_cast<std::size_t>(end - begin) * size;
  auto* whole = static_cast<std::byte*>(wide.raw()) + static_cast<std::size_t>(begin) * size;
  auto* part = static_cast<std::byte*>(columns.raw());
  constexpr std::int64_t kGrain = 16;
  run.threads().run_chunked(wide.dim(0), kGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      std::byte* at = whole + static_cast<std::size_t>(row * n) * size;
      std::byte* own = part + static_cast<std::size_t>(row) * bytes;
      std::copy_n(way == Way::kOut ? at : own, bytes, way == Way::kOut ? own : at);
    }
  });
}

// The bias as f32, which every product takes beside f32 weights.
Tensor f32_bias(Run& run, const Tensor& bias) {
  if (!bias.defined() || bias.dtype() == Dtype::kF32) return bias;
  const Tensor wide = run.take_scratch({Dtype::kF32, bias.shape()});
  convert(run, bias, wide);
  return wide;
}

Declined forward_by_tiles(Run& run, const Product& args) {
  return serve_host(run, [&] {
    const std::int64_t m = args.rows();
    const std::int64_t n = args.w.shape.dim(0);
    const std::int64_t k = args.w.shape.dim(1);
    const std::int64_t step = tile_rows(args.w.shape);
    const Tensor x = args.x.reshaped({m, k});
    const Tensor y = args.y.reshaped({m, n});
    Run outer = run;
    const Tensor bias = f32_bias(outer, args.bias);
    for (std::int64_t begin = 0; begin < n; begin += step) {
      const std::int64_t end = std::min(begin + step, n);
      Run inner = outer;
      const Tensor tile = inner.take_scratch({Dtype::kF32, {end - begin, k}});
      const bool is_whole = end - begin == n;
      const Tensor columns = is_whole ? y : inner.take_scratch({args.y.dtype(), {m, end - begin}});
      widen_packed(inner, args.w, begin, end, tile);
      matmul(inner, Transpose::kNT, x, tile, columns,
             bias.defined() ? bias.rows(begin, end) : Tensor());
      if (!is_whole) copy_columns(inner, Way::kIn, y, begin, end, columns);
    }
  });
}

// dx is a sum over tiles, so it is kept in f32 until the last.
Declined backward_by_tiles(Run& run, const Product& args) {
  return serve_host(run, [&] {
    const std::int64_t m = args.rows();
    const std::int64_t n = args.w.shape.dim(0);
    const std::int64_t k = args.w.shape.dim(1);
    const std::int64_t step = tile_rows(args.w.shape);
    const Tensor dy = args.x.reshaped({m, n});
    const Tensor dx = args.y.reshaped({m, k});
    Run outer = run;
    const Tensor sum = dx.dtype() == Dtype::kF32 ? dx : outer.take_scratch({Dtype::kF32, {m, k}});
    for (std::int64_t begin = 0; begin < n; begin += step) {
      const std::int64_t end = std::min(begin + step, n);
      Run inner = outer;
      const Tensor tile = inner.take_scratch({Dtype::kF32, {end - begin, k}});
      const bool is_whole = end - begin == n;
      const Tensor columns = is_whole ? dy : inner.take_scratch({dy.dtype(), {m, end - begin}});
      if (!is_whole) copy_columns(inner, Way::kOut, dy, begin, end, columns);
      widen_packed(inner, args.w, begin, end, tile);
      matmul(inner, Transpose::kNN, columns, tile, sum, {}, /*accumulate=*/begin > 0);
    }
    if (dx.dtype() != Dtype::kF32) convert(outer, sum, dx);
  });
}

constexpr Implementation<Product> kForward[] = {{"tiles", forward_by_tiles}};
constexpr Implementation<Product> kBackward[] = {{"tiles", backward_by_tiles}};

OpCost cost_of_product(const Product& args) {
  const Shape& w = args.w.shape;
  const double rows = static_cast<double>(args.rows());
  OpCost cost = cost_of({args.x, args.y, args.w.bytes},
                        2.0 * rows * static_cast<double>(w.dim(0)) * static_cast<double>(w.dim(1)));
  cost.shape = {args.rows(), w.dim(0), w.dim(1)};
  return cost;
}

void check_matrix(const char* op, const PackedMatrix& w) {
  ATOLL_CHECK(!w.is_empty() && w.shape.rank() == 2, "{}: an operand is empty", op);
  check_size(op, Dtype::kU8, static_cast<std::int64_t>(w.num_bytes()), {w.bytes});
}

void check_float(const char* op, const Tensor& tensor, std::int64_t elements) {
  ATOLL_CHECK(tensor.dtype() == Dtype::kF32 || tensor.dtype() == Dtype::kBf16, "{}: {}", op,
              tensor.spec().to_string());
  check_size(op, tensor.dtype(), elements, {tensor});
}

struct Lookup {
  Tensor tokens, y;
  const PackedMatrix& table;
};

Declined rows_of_table(Run& run, const Lookup& args) {
  return serve_host(run, [&] {
    const std::int64_t width = args.table.shape.dim(1);
    const std::int64_t count = args.tokens.num_elements();
    check_tokens(args.tokens, args.table.shape.dim(0));
    const std::int32_t* ids = args.tokens.data<std::int32_t>();
    const Tensor rows = args.y.reshaped({count, width});
    Run inner = run;
    const Tensor wide = inner.take_scratch({Dtype::kF32, {1, width}});
    for (std::int64_t i = 0; i < count; ++i) {
      if (rows.dtype() == Dtype::kF32) {
        widen_packed(inner, args.table, ids[i], ids[i] + 1, rows.rows(i, i + 1));
        continue;
      }
      widen_packed(inner, args.table, ids[i], ids[i] + 1, wide);
      convert(inner, wide, rows.rows(i, i + 1));
    }
  });
}

constexpr Implementation<Lookup> kLookup[] = {{"rows", rows_of_table}};

}  // namespace

std::size_t PackedMatrix::num_bytes() const {
  return is_empty() ? 0 : parts.back().offset + align_up(parts.back().format->bytes());
}

void PackedMatrix::append(std::int64_t rows, std::shared_ptr<const PackedFormat> format) {
  const std::int64_t begin = is_empty() ? 0 : parts.back().row_begin + parts.back().rows;
  parts.push_back({begin, rows, std::move(format), num_bytes()});
}

std::byte* PackedMatrix::data_of(const PackedPart& part) const {
  return static_cast<std::byte*>(bytes.raw()) + part.offset;
}

void widen_packed(Run& run, const PackedMatrix& w, std::int64_t begin, std::int64_t end,
                  const Tensor& out) {
  const std::int64_t k = w.shape.dim(1);
  ATOLL_CHECK(begin >= 0 && begin <= end && end <= w.shape.dim(0), "rows [{}, {}) of {}", begin,
              end, w.shape.to_string());
  check_size("widen_packed", Dtype::kF32, (end - begin) * k, {out});
  auto* to = out.data<float>();
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (k + 1));
  run.threads().run_chunked(end - begin, grain, [&](std::int64_t first, std::int64_t last) {
    for (const PackedPart& part : w.parts) {
      const std::int64_t from = std::max(begin + first, part.row_begin);
      const std::int64_t until = std::min(begin + last, part.row_begin + part.rows);
      if (from >= until) continue;
      part.format->widen(w.data_of(part), from - part.row_begin, until - part.row_begin,
                         to + (from - begin) * k);
    }
  });
}

void matmul_packed(Run& run, const Tensor& x, const PackedMatrix& w, const Tensor& y,
                   const Tensor& bias) {
  check_matrix("matmul_packed", w);
  const Product args = {x, y, bias, w};
  check_float("matmul_packed", x, args.rows() * w.shape.dim(1));
  check_float("matmul_packed", y, args.rows() * w.shape.dim(0));
  if (bias.defined()) check_float("matmul_packed", bias, w.shape.dim(0));
  if (args.rows() == 0) return;
  dispatch<Product>("matmul_packed", kForward, run, args, cost_of_product(args));
}

void matmul_packed_backward(Run& run, const Tensor& dy, const PackedMatrix& w, const Tensor& dx) {
  check_matrix("matmul_packed_backward", w);
  const Product args = {dy, dx, {}, w};
  check_float("matmul_packed_backward", dy, args.rows() * w.shape.dim(0));
  check_float("matmul_packed_backward", dx, args.rows() * w.shape.dim(1));
  if (args.rows() == 0) return;
  dispatch<Product>("matmul_packed_backward", kBackward, run, args, cost_of_product(args));
}

std::size_t matmul_packed_scratch_bytes(std::int64_t rows, const Shape& w) {
  const std::int64_t step = tile_rows(w);
  const Spec x = {Dtype::kF32, {rows, w.dim(1)}};
  std::size_t products = 0;
  for (const std::int64_t height : {step, w.dim(0) % step}) {
    if (height == 0) continue;
    const Spec tile = {Dtype::kF32, {height, w.dim(1)}};
    const Spec y = {Dtype::kF32, {rows, height}};
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
      products = std::max({products, matmul_scratch_bytes(Transpose::kNT, {dtype, x.shape}, tile),
                           matmul_scratch_bytes(Transpose::kNN, {dtype, y.shape}, tile)});
    }
  }
  const Spec tile = {Dtype::kF32, {step, w.dim(1)}};
  const Spec columns = {Dtype::kF32, {rows, step}};
  const Spec bias = {Dtype::kF32, {w.dim(0)}};
  return align_up(tile.bytes()) + align_up(columns.bytes()) +
         std::max(align_up(bias.bytes()), align_up(x.bytes())) + products;
}

void embedding_packed(Run& run, const Tensor& tokens, const PackedMatrix& table, const Tensor& y) {
  check_matrix("embedding_packed", table);
  const std::int64_t count = tokens.num_elements();
  check_size("embedding_packed", Dtype::kI32, count, {tokens});
  check_float("embedding_packed", y, count * table.shape.dim(1));
  dispatch<Lookup>("embedding_packed", kLookup, run, {tokens, y, table});
}

std::size_t embedding_packed_scratch_bytes(const Shape& table) {
  return align_up(Spec{Dtype::kF32, {1, table.dim(1)}}.bytes());
}

}  // namespace atl::ops
