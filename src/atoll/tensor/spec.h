#pragma once

// What a tensor is (shape and dtype), apart from where its bytes lie.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace atl {

/// Element types. Arithmetic runs in f32 and, for gradient checks, f64; the others are storage.
enum class Dtype : std::uint8_t { kF32, kF64, kBf16, kF16, kI32, kI64, kU8 };

/// Bytes of one element.
std::size_t dtype_size(Dtype dtype);
/// The field's short name: "f32", "bf16", "i32", ...
std::string_view dtype_name(Dtype dtype);

/// What arithmetic on tensors of this dtype runs in, and what their statistics (norms' rstd,
/// attention's log-sum-exp), losses and weight gradients are kept in: f64 for f64, else f32.
constexpr Dtype compute_dtype(Dtype dtype) {
  return dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
}

/// Up to four dims, outermost first, row-major and contiguous. An empty shape is a scalar.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  /// Throws Error(kInternal) for more than kMaxRank dims or a negative one.
  Shape(std::initializer_list<std::int64_t> dims);

  int rank() const { return rank_; }
  /// Dim i; negative i counts from the end: dim(-1) is the innermost.
  std::int64_t dim(int i) const { return dims_[i < 0 ? rank_ + i : i]; }
  /// The product of all dims; 1 for a scalar.
  std::int64_t num_elements() const;
  /// The product of all dims but the innermost: how many rows of dim(-1) elements there are.
  std::int64_t num_rows() const { return rank_ == 0 ? 1 : with_last(1).num_elements(); }
  /// This shape with its innermost dim replaced.
  Shape with_last(std::int64_t last) const;
  /// "(8, 256, 384)".
  std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::int64_t dims_[kMaxRank] = {};
  int rank_ = 0;
};

/// Shape and dtype.
struct Spec {
  Dtype dtype = Dtype::kF32;
  Shape shape;

  std::size_t bytes() const {
    return static_cast<std::size_t>(shape.num_elements()) * dtype_size(dtype);
  }
  /// This spec with its innermost dim replaced.
  Spec with_last(std::int64_t last) const { return {dtype, shape.with_last(last)}; }
  /// This spec in the dtype that its arithmetic runs in.
  Spec in_compute_dtype() const { return {compute_dtype(dtype), shape}; }
  /// "f32 (8, 256, 384)".
  std::string to_string() const;

  friend bool operator==(const Spec&, const Spec&) = default;
};

}  // namespace atl
