#pragma once

// Where memory lies and work runs. Everything above this floor is written once for all devices.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/thread_pool.h"

namespace atl {

/// The kinds of device there are code paths for.
enum class DeviceKind { kCpu, kCuda };

/// One CPU (with its thread pool) or one GPU. Owns nothing that outlives it.
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  /// What a person calls it: "AMD EPYC, 2 threads", "NVIDIA H200".
  virtual std::string name() const = 0;
  /// Bytes of memory a run may use at most.
  virtual std::size_t total_memory() const = 0;
  /// Zeroed memory aligned to at least 64 bytes. Throws Error(kResource) naming the bytes.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* data, std::size_t bytes) noexcept = 0;
  /// The threads that run CPU work for this device (a GPU has one host thread).
  virtual ThreadPool& threads() = 0;
};

/// The sole owner of a piece of device memory.
class Buffer {
 public:
  Buffer() = default;
  /// Takes `bytes` zeroed bytes from `device`, which must outlive the buffer.
  Buffer(Device& device, std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// An ordered queue of work on a device. On a CPU the queue is always empty: a call returns when
/// its work is done. A GPU's stream runs behind its host thread.
class Stream {
 public:
  explicit Stream(Device& device) : device_(&device) {}
  virtual ~Stream() = default;
  Device& device() const { return *device_; }
  ThreadPool& threads() const { return device_->threads(); }
  /// Returns when everything queued so far is done.
  virtual void synchronize() {}

 private:
  Device* device_;
};

/// The CPU as a device, with `num_threads` threads (0: as many as available_cpus()).
std::unique_ptr<Device> open_cpu(int num_threads);

/// What `atoll doctor` prints of the GPUs: one line each, or why there are none.
struct GpuReport {
  bool built_in = false;  ///< Was this binary built with the CUDA device?
  std::vector<std::string> devices;
  std::string problem;  ///< Empty when at least one device can be used.
};
GpuReport probe_gpus();

/// GPU `index`. Throws Error(kUser) saying why not and what to do when it cannot be had.
std::unique_ptr<Device> open_cuda(int index);

/// A CPU's features that kernels choose by, as one line: "avx512 avx512_bf16 avx2".
std::string cpu_features();

}  // namespace atl
