#pragma once

#include <memory>

namespace atl::comm {

/// A collective that was started and runs beside the caller. The tensors it was given must stay
/// as they are until wait() has returned. The end of the last copy waits too, without throwing, so
/// that an exception cannot free memory which is still being read.
class Work {
 public:
  struct State;

  Work() = default;  ///< one that is done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Returns when it is done; throws what it ended with. Once is enough, twice does no harm.
  void wait();
  bool done() const;

 private:
  std::shared_ptr<State> state_;  // shared by the copies
};

}  // namespace atl::comm
