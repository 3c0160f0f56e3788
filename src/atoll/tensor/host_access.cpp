#include "atoll/tensor/host_access.h"

#include <cstring>

#include "atoll/device/device.h"

namespace atl {

namespace {

void check_same(const Tensor& from, const Tensor& to) {
  ATOLL_CHECK(from.spec() == to.spec(), "{} to {}", from.spec().to_string(), to.spec().to_string());
}

// Memory of the host for what lies where the host cannot reach it; null for all else. Its elements
// are not filled.
std::unique_ptr<std::byte[]> room_for(const Tensor& tensor) {
  if (is_on_host(tensor)) return nullptr;
  return std::unique_ptr<std::byte[]>(new std::byte[tensor.bytes()]);
}

Tensor seen_by_host(const Tensor& tensor, const std::unique_ptr<std::byte[]>& room) {
  return room ? Tensor(room.get(), tensor.spec()) : tensor;
}

}  // namespace

bool is_on_host(const Tensor& tensor) {
  return tensor.device() == nullptr || tensor.device()->kind() == DeviceKind::kCpu;
}

void queue_copy(Stream& stream, const Tensor& from, const Tensor& to) {
  check_same(from, to);
  for (const Tensor* tensor : {&from, &to}) {
    ATOLL_CHECK(is_on_host(*tensor) || tensor->device() == &stream.device(),
                "a tensor of another device");
  }
  stream.copy(to.raw(), from.raw(), from.bytes());
}

void copy_now(const Tensor& from, const Tensor& to) {
  check_same(from, to);
  if (from.raw() == to.raw() || from.bytes() == 0) return;
  if (is_on_host(from) && is_on_host(to)) {
    std::memcpy(to.raw(), from.raw(), from.bytes());
    return;
  }
  Device* device = is_on_host(from) ? to.device() : from.device();
  ATOLL_CHECK(is_on_host(to) || to.device() == device, "a copy from one device to another");
  device->copy_now(to.raw(), from.raw(), from.bytes());
}

HostRead::HostRead(const Tensor& tensor)
    : copy_(room_for(tensor)), host_(seen_by_host(tensor, copy_)) {
  if (copy_) copy_now(tensor, host_);
}

namespace internal {

HostWrite::HostWrite(const Tensor& tensor, bool keeps_elements)
    : tensor_(tensor), copy_(room_for(tensor)), host_(seen_by_host(tensor, copy_)) {
  if (copy_ && keeps_elements) copy_now(tensor_, host_);
}

void HostWrite::finish() const {
  if (copy_) copy_now(host_, tensor_);
}

}  // namespace internal

}  // namespace atl
