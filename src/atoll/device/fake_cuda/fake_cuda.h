#pragma once

// A GPU that is not there: the same Device, Stream and Event, on the host. Its memory cannot be
// touched by the host, its streams run only when somebody waits for them, and in any order that a
// GPU might choose. Whatever forgets a copy, a wait or a barrier fails here without a GPU.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "atoll/device/device.h"
#include "atoll/device/fake_cuda/run_kernel.h"
#include "atoll/device/free_memory.h"

namespace atl::fake_cuda {

struct Options {
  std::uint64_t seed = 0;  ///< of the order of streams, blocks and threads; see Order
  int threads = 1;         ///< of the host, that run the blocks of a kernel
  std::size_t total_memory = std::size_t{8} << 30;
  std::int64_t lost_after =
      0;  ///< kernels that run; the next is lost, and every later call throws; 0: never
  Checks checks = {};  ///< of what kernels do
};

/// What all launches of one kernel came to.
struct KernelTotal {
  std::int64_t launches = 0;
  Traffic traffic;
};

class FakeEvent;
class FakeStream;

/// Memory, streams and events as a GPU has them. One thread of the host uses it at a time.
class FakeCudaDevice final : public Device, public FreeMemory {
 public:
  explicit FakeCudaDevice(const Options& options);
  ~FakeCudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override;
  std::size_t total_memory() const override { return options_.total_memory; }
  std::size_t free_memory() override { return options_.total_memory - used_; }
  void* allocate(std::size_t bytes) override;
  void deallocate(void* data, std::size_t bytes) noexcept override;
  void* allocate_host(std::size_t bytes) override;
  void deallocate_host(void* data, std::size_t bytes) noexcept override;
  ThreadPool& threads() override { return threads_; }
  std::unique_ptr<Stream> open_stream() override;
  std::unique_ptr<Event> make_event() override;
  /// As of a GPU, from several threads at once too: a checkpoint is read by some.
  void copy_now(void* to, const void* from, std::size_t bytes) override;

  /// Runs what is queued in any stream, in an order that the seed decides, until `is_done`. Throws
  /// what the work throws; Error(kInternal) when all streams wait for one another.
  void run_until(const std::function<bool()>& is_done);
  /// How often the host has waited for work that was not done.
  std::int64_t num_waits() const { return num_waits_; }
  /// How often memory was taken, of the device or page-locked.
  std::int64_t num_allocations() const { return num_allocations_; }
  /// What libraries were asked for, in the order in which it was queued.
  const std::vector<std::string>& library_calls() const { return library_calls_; }
  /// By the name of the kernel, of all launches that have run.
  const std::map<std::string, KernelTotal>& totals() const { return totals_; }

 private:
  friend class FakeEvent;
  friend class FakeStream;
  class Unlocked;

  FakeStream* next_ready();
  /// Another kernel begins. Throws DeviceLostError when as many as it can run have run.
  void count_kernel();
  void check_there() const;
  /// Throws Error(kInternal) while a stream captures: a GPU refuses `what` then.
  void check_no_capture(const char* what) const;

  Options options_;
  ThreadPool threads_;
  std::recursive_mutex mutex_;  // of the memory's protection, and of what runs
  std::map<std::byte*, std::size_t> memory_;
  std::size_t used_ = 0;
  std::vector<FakeStream*> streams_;
  std::uint64_t num_chosen_ = 0;
  std::int64_t num_kernels_ = 0;
  std::int64_t num_waits_ = 0;
  std::int64_t num_allocations_ = 0;
  std::map<std::string, KernelTotal> totals_;
  std::vector<std::string> library_calls_;
};

/// Closures that are queued again, with what they have kept of the host's values.
class FakeGraph final : public cuda::KernelGraph {
 private:
  friend class FakeStream;
  std::vector<std::function<void()>> work_;
  std::vector<std::string> library_calls_;
};

/// A queue of closures.
class FakeStream final : public Stream, public cuda::KernelStream {
 public:
  explicit FakeStream(FakeCudaDevice& device);
  ~FakeStream() override;

  void synchronize() override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void fill_zero(void* data, std::size_t bytes) override;
  void wait(const Event& event) override;
  void launch(const cuda::KernelCode& code, const cuda::LaunchShape& shape, const void* operands,
              std::size_t bytes) override;

  void begin_capture() override;
  std::unique_ptr<cuda::KernelGraph> end_capture() override;
  void abandon_capture() noexcept override { captured_.reset(); }
  void launch(cuda::KernelGraph& graph) override;
  bool is_capturing() const { return captured_ != nullptr; }

  /// Queues what stands in for a call of a library, and records it.
  void call_library(std::string description, std::function<void()> work);
  /// Queues work that may touch the device's memory: what a library does on a GPU. It runs when
  /// `is_ready` (empty: at once).
  void queue(std::function<void()> work, std::function<bool()> is_ready = {});

 private:
  friend class FakeCudaDevice;
  struct Item {
    std::function<void()> work;
    std::function<bool()> is_ready;
  };

  FakeCudaDevice& fake_;
  std::deque<Item> items_;
  std::unique_ptr<FakeGraph> captured_;  // while a capture is under way
};

/// The place that record() marked, once the stream has come to it.
class FakeEvent final : public Event {
 public:
  explicit FakeEvent(FakeCudaDevice& device) : device_(device) {}
  void record(Stream& stream) override;
  bool is_done() override;
  void wait() override;
  double seconds_since(const Event& earlier) const override;
  /// True once what is recorded now is reached; stays about that record.
  std::function<bool()> reached() const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  FakeCudaDevice& device_;
  // Shared with the queue, which may outlive the event.
  std::shared_ptr<std::optional<Time>> point_;
};

}  // namespace atl::fake_cuda
