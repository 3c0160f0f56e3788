#include "atoll/tensor/spec.h"

#include "atoll/base/check.h"

namespace atl {

std::size_t dtype_size(Dtype dtype) {
  constexpr std::size_t kSizes[] = {4, 8, 2, 2, 4, 8, 1};
  return kSizes[static_cast<int>(dtype)];
}

std::string_view dtype_name(Dtype dtype) {
  constexpr std::string_view kNames[] = {"f32", "f64", "bf16", "f16", "i32", "i64", "u8"};
  return kNames[static_cast<int>(dtype)];
}

namespace {

// Eight bytes an element are the most; every size in bytes then fits 63 bits.
void check_size(const Shape& shape) {
  std::int64_t count = 8;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!__builtin_mul_overflow(count, shape.dim(i), &count)) continue;
    throw make_error(ErrorKind::kResource, "a tensor of {} is larger than any memory",
                     shape.to_string());
  }
}

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> dims) {
  ATOLL_CHECK(dims.size() <= kMaxRank, "{} dims", dims.size());
  for (const std::int64_t dim : dims) {
    ATOLL_CHECK(dim >= 0, "dim {}", dim);
    dims_[rank_++] = dim;
  }
  check_size(*this);
}

std::int64_t Shape::num_elements() const {
  std::int64_t count = 1;
  for (int i = 0; i < rank_; ++i) count *= dims_[i];
  return count;
}

Shape Shape::with_last(std::int64_t last) const {
  ATOLL_CHECK(rank_ > 0, "a scalar has no innermost dim");
  Shape shape = *this;
  shape.dims_[rank_ - 1] = last;
  check_size(shape);
  return shape;
}

std::string Shape::to_string() const {
  std::string text = "(";
  for (int i = 0; i < rank_; ++i) text += (i > 0 ? ", " : "") + std::to_string(dims_[i]);
  return text + ")";
}

std::string Spec::to_string() const {
  return std::string(dtype_name(dtype)) + " " + shape.to_string();
}

}  // namespace atl
