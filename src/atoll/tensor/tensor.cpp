#include "atoll/tensor/tensor.h"

namespace atl {

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  const Shape& whole = spec_.shape;
  ATOLL_CHECK(whole.rank() > 0 && 0 <= begin && begin <= end && end <= whole.dim(0),
              "rows {} to {} of {}", begin, end, spec_.to_string());
  const std::int64_t row = whole.dim(0) == 0 ? 0 : whole.num_elements() / whole.dim(0);
  Shape part;
  switch (whole.rank()) {
    case 1:
      part = {end - begin};
      break;
    case 2:
      part = {end - begin, whole.dim(1)};
      break;
    case 3:
      part = {end - begin, whole.dim(1), whole.dim(2)};
      break;
    default:
      part = {end - begin, whole.dim(1), whole.dim(2), whole.dim(3)};
      break;
  }
  auto* bytes = static_cast<std::byte*>(data_);
  return {bytes + static_cast<std::size_t>(begin * row) * dtype_size(spec_.dtype),
          {spec_.dtype, part},
          device_};
}

}  // namespace atl
