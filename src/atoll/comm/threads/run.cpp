#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "atoll/comm/failure.h"
#include "atoll/comm/threads/transport.h"
#include "atoll/comm/world.h"

namespace atl::comm {

namespace {

/// What the ranks have thrown.
class Thrown {
 public:
  explicit Thrown(int size) : of_rank_(static_cast<std::size_t>(size)) {}

  /// The exception that is being handled.
  void note(int rank) {
    const std::lock_guard lock(mutex_);
    of_rank_[static_cast<std::size_t>(rank)] = std::current_exception();
    if (first_ < 0) first_ = rank;
  }
  /// Throws that of the rank that brought the others down, or else the first.
  void rethrow(const ThreadChannel& channel) {
    if (first_ < 0) return;
    const int cause = channel.aborted() ? channel.aborted_by() : first_;
    const std::exception_ptr& thrown = of_rank_[static_cast<std::size_t>(cause)];
    std::rethrow_exception(thrown ? thrown : of_rank_[static_cast<std::size_t>(first_)]);
  }

 private:
  std::mutex mutex_;
  std::vector<std::exception_ptr> of_rank_;
  int first_ = -1;
};

void run_rank(ThreadChannel& channel, int rank, const WorldOptions& options, Thrown& thrown,
              const std::function<void(World&)>& body) {
  try {
    World world(std::make_unique<ThreadsTransport>(channel, rank), options);
    try {
      body(world);
    } catch (...) {
      thrown.note(rank);
      world.abort(Failure::current().message);
    }
  } catch (...) {
    thrown.note(rank);
    channel.abort(rank, Failure::current().message);
  }
}

}  // namespace

void run_threads(int num_ranks, const WorldOptions& options,
                 const std::function<void(World& world)>& body) {
  if (num_ranks < 1) throw user_error("{} ranks: there must be at least one", num_ranks);
  if (num_ranks == 1) {
    const std::unique_ptr<World> world = open_self(options);
    return body(*world);
  }
  ThreadChannel channel(num_ranks, options.timeout_s);
  Thrown thrown(num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    try {
      threads.emplace_back([&, rank] { run_rank(channel, rank, options, thrown, body); });
    } catch (...) {
      thrown.note(rank);
      channel.abort(rank, Failure::current().message);
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  thrown.rethrow(channel);
}

}  // namespace atl::comm
