#pragma once

// Worlds within one process, for tests.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "atoll/comm/threads/transport.h"
#include "atoll/comm/world.h"

namespace atl::comm::test {

/// Threads whose collectives are made of messages, as between machines.
class MessagesTransport final : public Transport {
 public:
  /// Messages of 4 KiB, so that small tensors take many. `ranks_a_host`: what host() says; 0: 1.
  MessagesTransport(ThreadChannel& channel, int rank, int ranks_a_host = 0)
      : channel_(channel), threads_(channel, rank), ranks_a_host_(std::max(1, ranks_a_host)) {}

  int rank() const override { return threads_.rank(); }
  int size() const override { return threads_.size(); }
  std::string name() const override { return "messages"; }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    threads_.exchange(outgoing, incoming);
  }
  std::size_t piece_bytes() const override { return 4096; }
  std::unique_ptr<Transport> open_channel(int number, std::span<const int> members) override {
    return std::make_unique<MessagesTransport>(channel_.open(number, members), rank(),
                                               ranks_a_host_);
  }
  void abort(const std::string& why) noexcept override { threads_.abort(why); }
  int host(int rank) const override { return rank / ranks_a_host_; }

 private:
  ThreadChannel& channel_;
  ThreadsTransport threads_;
  int ranks_a_host_;
};

enum class Backend { kSelf, kThreads, kMessages };

inline const char* name_of(Backend backend) {
  return backend == Backend::kSelf ? "self" : backend == Backend::kThreads ? "threads" : "messages";
}

/// As run_threads, with any of them.
inline void run(Backend backend, int size, const WorldOptions& options,
                const std::function<void(World&)>& body) {
  if (backend != Backend::kMessages) return run_threads(size, options, body);
  ThreadChannel channel(size, options.timeout_s);
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      World world(std::make_unique<MessagesTransport>(channel, rank, options.local_ranks), options);
      try {
        body(world);
      } catch (const std::exception& error) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
        world.abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!channel.aborted()) return;
  std::rethrow_exception(thrown[static_cast<std::size_t>(channel.aborted_by())]);
}

/// What each rank's `body` ended with; empty: it did not throw.
inline std::vector<std::string> errors_of(Backend backend, int size, const WorldOptions& options,
                                          const std::function<void(World&)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  try {
    run(backend, size, options, [&](World& world) {
      try {
        body(world);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(world.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception&) {  // each rank's is noted
  }
  return errors;
}

}  // namespace atl::comm::test
