#pragma once

#include <cstddef>
#include <type_traits>

#include "atoll/base/check.h"
#include "atoll/simd/bf16.h"
#include "atoll/tensor/spec.h"

namespace atl {

class Device;

/// The Dtype of a C++ element type.
template <typename T>
constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return Dtype::kF32;
  else if constexpr (std::is_same_v<T, double>)
    return Dtype::kF64;
  else if constexpr (std::is_same_v<T, Bf16>)
    return Dtype::kBf16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return Dtype::kI32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return Dtype::kI64;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return Dtype::kU8;
  else
    static_assert(!sizeof(T), "no Dtype for this element type");
}

/// A non-owning view of contiguous memory with a Spec. Copying copies the view. Constness is the
/// view's, as with std::span: a `const Tensor&` argument may still be written through data().
class Tensor {
 public:
  Tensor() = default;
  /// `data` must hold spec.bytes() bytes, aligned for the dtype, for as long as the view is used.
  /// It is memory of `device`; null: of the host.
  Tensor(void* data, Spec spec, Device* device = nullptr)
      : data_(data), spec_(spec), device_(device) {}

  const Spec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  Dtype dtype() const { return spec_.dtype; }
  std::int64_t dim(int i) const { return spec_.shape.dim(i); }
  std::int64_t num_elements() const { return spec_.shape.num_elements(); }
  std::size_t bytes() const { return spec_.bytes(); }
  /// False for a default-made view: "there is no such tensor".
  bool defined() const { return data_ != nullptr; }
  /// Whose memory it is; null: the host's.
  Device* device() const { return device_; }

  /// Where the elements lie, for kernels and transports, which know whose memory it is. Above ops
  /// the host reads and writes elements through tensor/host_access.h.
  void* raw() const { return data_; }
  /// The same as elements; throws Error(kInternal) when T is not this tensor's dtype.
  template <typename T>
  T* data() const {
    ATOLL_CHECK(dtype_of<T>() == spec_.dtype, "tensor is {}", spec_.to_string());
    return static_cast<T*>(data_);
  }

  /// The same bytes under another shape of as many elements.
  Tensor reshaped(Shape shape) const {
    ATOLL_CHECK_EQ(shape.num_elements(), num_elements());
    return {data_, {spec_.dtype, shape}, device_};
  }
  /// Rows [begin, end) of the outermost dim.
  Tensor rows(std::int64_t begin, std::int64_t end) const;

 private:
  void* data_ = nullptr;
  Spec spec_;
  Device* device_ = nullptr;
};

}  // namespace atl
