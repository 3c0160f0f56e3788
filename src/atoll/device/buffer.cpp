#include <utility>

#include "atoll/device/device.h"

namespace atl {

Buffer::Buffer(Device& device, std::size_t bytes, MemoryKind kind)
    : device_(&device),
      data_(kind == MemoryKind::kHost ? device.allocate_host(bytes) : device.allocate(bytes)),
      bytes_(bytes),
      kind_(kind) {}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (kind_ == MemoryKind::kHost) {
    device_->deallocate_host(data_, bytes_);
  } else {
    device_->deallocate(data_, bytes_);
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      kind_(other.kind_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(kind_, other.kind_);
  return *this;
}

}  // namespace atl
