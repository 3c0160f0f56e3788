#pragma once

#include <memory>

namespace atl::comm {

struct Started;

/// A collective that was started and runs beside the caller. The tensors it was given must stay
/// as they are until wait() has returned. The end of a Work waits too, without throwing, so that an
/// exception cannot free memory which is still being read.
class Work {
 public:
  Work() = default;  ///< one that is done
  /// Of a call that is in a worker's queue.
  explicit Work(std::shared_ptr<Started> started) : started_(std::move(started)) {}
  ~Work() { release(); }
  Work(Work&& other) noexcept : started_(std::move(other.started_)) {}
  Work& operator=(Work&& other) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Returns when it is done; throws what it ended with. Once is enough, twice does no harm.
  void wait();
  bool done() const;

 private:
  void release() noexcept;

  std::shared_ptr<Started> started_;  // shared with the worker, which a Work may outlive
};

}  // namespace atl::comm
