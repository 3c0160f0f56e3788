#pragma once

// How host code starts a kernel, whether a GPU runs it or the shim of device/fake_cuda. No CUDA
// header is needed here.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "atoll/device/device.h"

namespace atl::cuda {

/// How many threads a kernel gets: blocks_x * blocks_y blocks of `threads` threads, a multiple of
/// 32 up to 1024, with `shared_bytes` of shared memory a block.
struct LaunchShape {
  std::uint32_t blocks_x = 1;
  std::uint32_t blocks_y = 1;
  std::uint32_t threads = 32;
  std::uint32_t shared_bytes = 0;

  friend bool operator==(const LaunchShape&, const LaunchShape&) = default;
};

/// A kernel as both worlds have it. A kernel is a struct of operands whose call operator is what
/// one thread does; `operands` are the bytes of such a struct.
struct KernelCode {
  const char* name = "";
  const void* gpu = nullptr;  ///< what cudaLaunchKernel takes; null where nvcc compiled none
  void (*shim)(const void* operands) = nullptr;  ///< one thread of it, on the host
};

/// Work that a stream of a GPU, real or fake, has recorded instead of running it.
class KernelGraph {
 public:
  virtual ~KernelGraph() = default;
};

/// What a stream of a GPU, real or fake, can do beside what every Stream can.
class KernelStream {
 public:
  virtual ~KernelStream() = default;
  /// Queues the kernel; `operands` (of `bytes` bytes) are copied now. Throws Error(kInternal) for
  /// a shape that no GPU has.
  virtual void launch(const KernelCode& code, const LaunchShape& shape, const void* operands,
                      std::size_t bytes) = 0;

  /// What is queued from here on is recorded and does not run. Until end_capture() the host may
  /// neither wait for the device, nor use events of this stream, nor take or give back memory of
  /// the device: each is an error.
  virtual void begin_capture() = 0;
  /// What was recorded, with the operands of each kernel as they were.
  virtual std::unique_ptr<KernelGraph> end_capture() = 0;
  /// Ends a capture of which nothing is wanted.
  virtual void abandon_capture() noexcept = 0;
  /// Queues all of a graph that a stream of the same device has recorded.
  virtual void launch(KernelGraph& graph) = 0;

  /// Memory for what an op brings back to the host: as many bytes of the device and, page-locked,
  /// of the host.
  struct Room {
    void* device = nullptr;
    void* host = nullptr;
  };
  /// Room for `bytes` at least, of `device`, whose stream this is; until the next call. It is kept
  /// from call to call, as a GPU that gives or takes memory waits for all of its work.
  Room room(Device& device, std::size_t bytes) {
    if (room_.bytes() < bytes) {
      room_ = Buffer(device, bytes);
      host_room_ = Buffer(device, bytes, MemoryKind::kHost);
    }
    return {room_.data(), host_room_.data()};
  }

 private:
  Buffer room_, host_room_;
};

}  // namespace atl::cuda
