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

Shape::Shape(std::initializer_list<std::int64_t> dims) {
  ATOLL_CHECK(dims.size() <= kMaxRank, "{} dims", dims.size());
  for (const std::int64_t dim : dims) {
    ATOLL_CHECK(dim >= 0, "dim {}", dim);
    dims_[rank_++] = dim;
  }
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
