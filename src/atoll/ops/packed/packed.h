#pragma once

// Frozen matrices that stay in the few bits a file has them in: products widen some rows at a time
// to f32, and never the whole matrix. What the bits mean is known to a PackedFormat alone.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "atoll/ops/run.h"

namespace atl::ops {

/// How the rows of one tensor of a file lie in bytes. Immutable; any thread may use it.
class PackedFormat {
 public:
  virtual ~PackedFormat() = default;

  /// What people call it: "nf4", "Q4_K".
  virtual std::string_view name() const = 0;
  /// Bytes that all rows take, with their scales.
  virtual std::size_t bytes() const = 0;
  /// Writes rows [begin, end) as f32, one after the other, to `out`. `packed` has bytes() bytes,
  /// which were checked when they were read: nothing is thrown.
  virtual void widen(const std::byte* packed, std::int64_t begin, std::int64_t end,
                     float* out) const = 0;
};

/// Rows [row_begin, row_begin + rows) of a matrix, as one tensor of a file has them.
struct PackedPart {
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::shared_ptr<const PackedFormat> format;  ///< shared with copies of the matrix
  std::size_t offset = 0;                      ///< of its bytes in PackedMatrix::bytes
};

/// A matrix (N, K) that several parts make up, each in a format of its own: a fused weight of
/// queries, keys and values has three.
struct PackedMatrix {
  Shape shape;
  std::vector<PackedPart> parts;  ///< in the order of their rows, which they cover
  Tensor bytes;                   ///< kU8, of num_bytes() elements; undefined until there is memory

  bool is_empty() const { return parts.empty(); }
  std::size_t num_bytes() const;
  /// Adds the rows behind the last part.
  void append(std::int64_t rows, std::shared_ptr<const PackedFormat> format);
  /// The memory of one part, where `bytes` is defined.
  std::byte* data_of(const PackedPart& part) const;
};

/// Writes rows [begin, end) of w to `out`, f32 (end - begin, K), which is memory of the host.
void widen_packed(Run& run, const PackedMatrix& w, std::int64_t begin, std::int64_t end,
                  const Tensor& out);

/// y = x W^T [+ bias].  x: (..., K)  W: (N, K)  y: (..., N)  bias: (N), or undefined. x and y are
/// each f32 or bf16, bias f32 or as x. Sums run in f32, in an order that depends on the shapes
/// alone; Run::row_stable holds. Needs matmul_packed_scratch_bytes of scratch. On a CPU only.
void matmul_packed(Run& run, const Tensor& x, const PackedMatrix& w, const Tensor& y,
                   const Tensor& bias = {});

/// dx = dy W.  dy: (..., N)  dx: (..., K), each f32 or bf16. As matmul_packed otherwise.
void matmul_packed_backward(Run& run, const Tensor& dy, const PackedMatrix& w, const Tensor& dx);

/// Scratch of both products for so many rows of x.
std::size_t matmul_packed_scratch_bytes(std::int64_t rows, const Shape& w);

/// y[b, t] = row tokens[b, t] of the table.  tokens: i32 (B, T)  table: (V, C)  y: (B, T, C), f32
/// or bf16. Throws Error(kDamaged) naming the first token outside [0, V). Needs
/// embedding_packed_scratch_bytes of scratch.
void embedding_packed(Run& run, const Tensor& tokens, const PackedMatrix& table, const Tensor& y);
std::size_t embedding_packed_scratch_bytes(const Shape& table);

}  // namespace atl::ops
