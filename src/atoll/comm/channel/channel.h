#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "atoll/comm/channel/shared_state.h"
#include "atoll/comm/channel/staging.h"
#include "atoll/comm/channel/worker.h"
#include "atoll/comm/collectives/algorithms.h"
#include "atoll/comm/collectives/gpu_collectives.h"
#include "atoll/comm/transport.h"

namespace atl::comm {

/// One order of calls: the calls of a channel are carried out one after the other, in the order in
/// which they are made, and wait for no other channel's. It has a transport of its own, and a
/// thread for started calls that is made when the first is started. Used by one thread of the rank
/// at a time. Tensors of a GPU go by GpuLinks where the world has some, else through host memory.
/// start() then returns when all is done, but of an exchange: it waits for the GPU to have made
/// what is sent, and Work::wait() copies to the GPU what has come.
class Channel {
 public:
  /// `transport` null: all groups of this channel have one rank. Errors are told to `world`.
  Channel(SharedState& world, std::string name, std::vector<int> members,
          std::unique_ptr<Transport> transport);

  const std::string& name() const { return name_; }
  void rename(const std::string& name) { name_ = name; }
  /// The ranks of the world that it connects, ascending.
  const std::vector<int>& members() const { return members_; }
  Transport* transport() const { return transport_.get(); }
  SharedState& world() const { return world_; }

  /// Runs a collective on the caller's thread once those started before it are done.
  void run(const Collective& collective);
  /// Queues a copy of it for the thread of this channel.
  Work start(const Collective& collective);
  /// Whether everything that was started is done.
  bool finished() const { return worker_.finished(); }
  /// Returns when that is so and the thread has ended.
  void stop() { worker_.stop(); }
  /// Gives the links between GPUs up, once what was started is done.
  void drop_gpu_links();
  /// Ends what moves over them with an error; from any thread.
  void abort_gpu_links() noexcept;

 private:
  bool is_staged(const Collective& collective);
  GpuCollectives* gpu();
  void wait_for_started();
  void run_here(const Collective& collective);
  void run_staged(const Collective& collective);
  Work start_staged_exchange(const Collective& collective);
  /// Of a group of two or more, which the record has as started.
  void carry_out(const Collective& collective, std::uint64_t number);
  void carry_out_queued(const Collective& collective, std::uint64_t number);
  void move_bytes(const Collective& collective);

  SharedState& world_;
  std::string name_;
  std::vector<int> members_;
  std::unique_ptr<Transport> transport_;
  Algorithms algorithms_;
  Staging staging_;
  std::vector<std::shared_ptr<StagedExchange>> exchanges_;  // shared with Works
  std::set<std::vector<int>> have_links_;  // ranks whose calls have made links, or will have
  std::mutex gpu_mutex_;  // of the pointer: abort_gpu_links() may be another thread's
  std::unique_ptr<GpuCollectives> gpu_;  // made when the first call wants it
  Worker worker_;                        // last: its thread uses the others
};

}  // namespace atl::comm
