#pragma once

// Gloo's headers forget <stdexcept>.
#include <stdexcept>
//
#include <gloo/rendezvous/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "atoll/comm/gloo/options.h"
#include "atoll/comm/rendezvous/rendezvous.h"
#include "atoll/comm/shared/network.h"

namespace atl::comm::gloo_net {

/// What the networks of one world share: how its ranks met, and Gloo's connections.
struct Setup {
  double timeout_s = 0;                    ///< of a collective
  std::unique_ptr<Rendezvous> rendezvous;  ///< for several threads
  std::string failure_key;  ///< there: the first thing that went wrong, in whichever channel
  std::unique_ptr<::gloo::rendezvous::Context> context;
};

/// Messages through Gloo's unbound buffers over TCP, which a thread of Gloo's moves.
class GlooNetwork : public Network {
 public:
  GlooNetwork(const GlooOptions& gloo, double timeout_s);
  /// Another one over the same connections, whose messages have slots of their own.
  GlooNetwork(std::shared_ptr<Setup> setup, int number);
  ~GlooNetwork() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "gloo"; }
  std::size_t piece_bytes() const override;
  /// Never carries one out, but learns whether sizes have to be compared.
  bool run(const Collective& collective) override;
  void post(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override;
  void progress() override {}
  void finish() override;
  void give_up(int rank, const std::string& why) noexcept override;
  std::unique_ptr<Network> open_network(int number, std::span<const int> members) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Message {
    int peer = 0;
    bool sends = false;
    std::size_t bytes = 0;
    std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
  };

  std::uint64_t slot(std::uint64_t of_channel) const;
  void connect(const GlooOptions& gloo, const std::string& rendezvous_id, double connect_timeout_s);
  void add(bool sends, int peer, void* data, std::size_t bytes, std::uint64_t slot);
  void add_sizes(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming);
  void compare_sizes();
  void wait_for(Message& message, Clock::time_point deadline);
  bool wait_a_while(Message& message);
  void look_after(const Message& message, int looks);
  void tick();
  [[noreturn]] void lose(int rank, const std::string& why);
  void say_goodbye();

  std::shared_ptr<Setup> setup_;  // shared by the world's networks
  int number_ = 0;                // 0: the world's first
  int rank_ = 0, size_ = 0;
  std::vector<Message> messages_;
  std::vector<Incoming> incoming_;                      // as posted, where sizes are compared
  std::vector<std::uint64_t> own_sizes_, their_sizes_;  // of what goes, and of what comes
  bool sizes_compared_ = false;
  std::mutex mutex_;  // of what follows: give_up() may be another thread's
  std::condition_variable stop_;
  Message* waited_for_ = nullptr;
  bool ending_ = false;    // this rank, with an error
  bool stopping_ = false;  // the ticker
  std::thread ticker_;     // last: uses the others
};

}  // namespace atl::comm::gloo_net
