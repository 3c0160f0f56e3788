#pragma once

// Where memory lies and work runs. Everything above this floor is written once for all devices.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/threads/thread_pool.h"

namespace atl {

/// The kinds of device there are code paths for.
enum class DeviceKind { kCpu, kCuda };

class Event;
class Stream;

/// One CPU (with its thread pool) or one GPU. Owns nothing that outlives it. What is not pure
/// virtual does what a CPU needs.
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
  /// The same for memory that the host uses and that streams copy to and from without staging it:
  /// page-locked for a GPU.
  virtual void* allocate_host(std::size_t bytes) { return allocate(bytes); }
  virtual void deallocate_host(void* data, std::size_t bytes) noexcept { deallocate(data, bytes); }
  /// The threads that run CPU work for this device (a GPU has one host thread).
  virtual ThreadPool& threads() = 0;

  /// A new queue of work. The device must outlive it.
  virtual std::unique_ptr<Stream> open_stream();
  virtual std::unique_ptr<Event> make_event();
  /// Copies between any two of the device's and the host's memories: waits for all work of all
  /// streams before, and returns when the bytes are there. For use between steps; in a step
  /// Stream::copy. They must not overlap.
  virtual void copy_now(void* to, const void* from, std::size_t bytes);
};

/// Whose memory a Buffer is.
enum class MemoryKind {
  kDevice,  ///< where the device computes
  kHost,    ///< the host's, as Device::allocate_host gives it
};

/// The sole owner of a piece of memory.
class Buffer {
 public:
  Buffer() = default;
  /// Takes `bytes` zeroed bytes from `device`, which must outlive the buffer.
  Buffer(Device& device, std::size_t bytes, MemoryKind kind = MemoryKind::kDevice);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  MemoryKind kind() const { return kind_; }
  /// Null for a default-made buffer.
  Device* device() const { return device_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kDevice;
};

/// An ordered queue of work on a device. On a CPU, which this class is made for, the queue is
/// always empty: a call returns when its work is done. A GPU's stream runs behind its host thread.
/// Device::open_stream makes the kind of stream that a device has.
class Stream {
 public:
  explicit Stream(Device& device) : device_(&device) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  Device& device() const { return *device_; }
  ThreadPool& threads() const { return device_->threads(); }
  /// Returns when everything queued so far is done.
  virtual void synchronize() {}
  /// Queues a copy between any two of the device's and the host's memories; they must not overlap.
  /// The host may read `to`, or overwrite `from`, only after synchronize() or an event behind it.
  virtual void copy(void* to, const void* from, std::size_t bytes);
  /// Queues zeroes for `bytes` bytes of the device's memory.
  virtual void fill_zero(void* data, std::size_t bytes);
  /// What is queued from here on runs after the point that `event` has recorded, in another stream
  /// of the same device.
  virtual void wait(const Event& event);

 private:
  Device* device_;
};

/// A point in a stream's work, to wait for and to measure time between. On a CPU the point is
/// reached when it is recorded. Device::make_event makes the kind of event that a device has.
class Event {
 public:
  virtual ~Event() = default;
  /// The point after all that `stream` has queued so far; replaces the one recorded before.
  virtual void record(Stream& stream);
  /// Whether the point is reached; true also when none was recorded.
  virtual bool is_done() { return true; }
  /// Returns when the point is reached. Throws Error(kResource) when work before it has failed.
  virtual void wait() {}
  /// Seconds on the device between the points of two events that are done. Throws Error(kInternal)
  /// when one has recorded none.
  virtual double seconds_since(const Event& earlier) const;

 private:
  std::optional<std::chrono::steady_clock::time_point> reached_;
};

/// Which device, and how it works. So far every caller asks for a CPU.
struct DeviceOptions {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;             ///< of several GPUs
  std::int64_t threads = 0;  ///< of the CPU; 0: as many as available_cpus()
};

/// The one place where a program gets its device. Throws Error(kUser) when it cannot be had.
std::unique_ptr<Device> open_device(const DeviceOptions& options);

/// The CPU as a device, with `num_threads` threads (0: as many as available_cpus()). Programs call
/// open_device.
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
