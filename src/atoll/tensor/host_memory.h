#pragma once

#include "atoll/device/device.h"

namespace atl {

/// Memory of the host beside a device, as an Arena takes it: what streams copy to and from without
/// staging it, and the host reads and writes as any other. It waits for no stream.
class HostMemory final : public Device {
 public:
  /// `device` must outlive this, and what was taken from it.
  explicit HostMemory(Device& device) : device_(device) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override { return "memory of the host"; }
  std::size_t total_memory() const override { return device_.total_memory(); }
  void* allocate(std::size_t bytes) override { return device_.allocate_host(bytes); }
  void deallocate(void* data, std::size_t bytes) noexcept override {
    device_.deallocate_host(data, bytes);
  }
  ThreadPool& threads() override { return device_.threads(); }

 private:
  Device& device_;
};

}  // namespace atl
