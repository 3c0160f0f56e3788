#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/comm/rendezvous.h"
#include "atoll/comm/shared/network.h"
#include "atoll/comm/tcp/movement.h"
#include "atoll/comm/tcp/world.h"

namespace atl::comm::tcp {

/// Messages and whole collectives over one connection a pair, in the thread that calls.
class TcpNetwork : public Network {
 public:
  TcpNetwork(const TcpOptions& tcp, double timeout_s);
  ~TcpNetwork() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "tcp"; }
  /// All but exchanges: the calls travel with the first of the data, so that nothing is waited for
  /// twice.
  bool run(const Collective& collective) override;
  void post(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override;
  void progress() override;
  void finish() override;
  void give_up(int rank, const std::string& why) noexcept override;

 private:
  using Clock = std::chrono::steady_clock;

  bool step();
  void wait(Clock::time_point end);
  void look_for_failure();
  [[noreturn]] void time_out();
  [[noreturn]] void lose(int rank, const std::string& why);

  int rank_, size_;
  double timeout_s_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::string failure_key_;  // at the rendezvous: the first thing that went wrong
  std::unique_ptr<Movement> movement_;
  std::chrono::microseconds spin_{0};
  std::vector<pollfd> descriptors_;
  Clock::time_point looked_;         // for a failure
  std::mutex mutex_;                 // of the rendezvous: give_up() may be another thread's
  std::atomic<bool> ending_{false};  // this rank, with an error
};

}  // namespace atl::comm::tcp
