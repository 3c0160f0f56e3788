#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "atoll/comm/rendezvous/rendezvous.h"
#include "atoll/comm/shared/network.h"
#include "atoll/comm/tcp/options.h"
#include "atoll/comm/tcp/tcp_mover.h"

namespace atl::comm::tcp {

/// What the networks of one world share: who this rank is and where it finds the others.
struct Setup {
  TcpOptions tcp;
  double timeout_s = 0;                    ///< of a collective
  double connect_timeout_s = 0;            ///< until all are connected
  std::unique_ptr<Rendezvous> rendezvous;  ///< for several threads
  std::string rendezvous_id;               ///< from gather(): begins all keys there

  /// At the rendezvous: the first thing that went wrong, in whichever channel.
  std::string failure_key() const { return rendezvous_id + "/failure"; }
};

/// Messages and whole collectives over one connection a pair, in the thread that calls.
class TcpNetwork : public Network {
 public:
  TcpNetwork(const TcpOptions& tcp, double timeout_s);
  /// Another one between some of the ranks.
  TcpNetwork(std::shared_ptr<Setup> setup, const std::string& name, std::span<const int> members);
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
  std::unique_ptr<Network> open_network(int number, std::span<const int> members) override;

 private:
  using Clock = std::chrono::steady_clock;

  bool step();
  void wait(Clock::time_point end);
  void look_for_failure();
  [[noreturn]] void time_out();
  [[noreturn]] void lose(int rank, const std::string& why);

  std::shared_ptr<Setup> setup_;  // shared by the world's networks: a failure is one of all
  int rank_, size_;
  std::unique_ptr<TcpMover> mover_;
  std::chrono::microseconds spin_{0};
  std::vector<pollfd> descriptors_;
  std::vector<CallHeader> headers_;
  Clock::time_point looked_;         // for a failure
  std::atomic<bool> ending_{false};  // this rank, with an error
};

}  // namespace atl::comm::tcp
