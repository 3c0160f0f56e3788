#pragma once

#include <string>
#include <vector>

#include "atoll/comm/threads/endpoint.h"
#include "atoll/comm/threads/message_exchange.h"
#include "atoll/comm/transport.h"

namespace atl::comm {

/// One rank among threads of a process. The ranks read and write each other's memory directly: a
/// collective is a barrier, at which the calls are compared, then the work, then a second barrier,
/// after which no rank accesses another rank's memory any more.
///
/// Bytes that a rank reads and writes, m = bytes of data, n = ranks; none are copied in between:
///   all_reduce      reads 1 / n of each rank's data and writes the sums back to all: 2 m
///   reduce_scatter  the same, but writes only its own part: m + m / n
///   all_gather      2 (n - 1) / n m
class ThreadsTransport final : public Transport {
 public:
  /// Of `rank` among those of the channel, which must outlive it.
  ThreadsTransport(ThreadChannel& channel, int rank)
      : endpoint_(channel, rank), exchange_(endpoint_) {}

  int rank() const override { return endpoint_.rank(); }
  int size() const override { return endpoint_.channel().size(); }
  std::string name() const override { return "threads"; }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override;
  bool run(const Collective& collective) override;
  std::unique_ptr<Transport> open_channel(int number, std::span<const int> members) override;
  void abort(const std::string& why) noexcept override;
  int host(int /*rank*/) const override { return 0; }

 private:
  void carry_out(const Collective& collective);
  void exchange_tensors(const Collective& collective);
  void work(const Collective& collective);
  /// Where the data of a member of the group begins.
  std::byte* data_of(const Collective& collective, int member) const;
  void all_reduce(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void all_gather(const Collective& collective);
  void broadcast(const Collective& collective);
  void all_to_all(const Collective& collective);

  Endpoint endpoint_;
  MessageExchange exchange_;
  std::vector<const void*> sources_;  // kept, as are the results, so that a call allocates nothing
  std::vector<void*> results_;
};

}  // namespace atl::comm
