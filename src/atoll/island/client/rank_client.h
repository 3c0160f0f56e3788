#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/island/client/rank_exchange.h"
#include "atoll/island/client/rank_orders.h"

namespace atl::island {

/// The client of a rank that does not lead its island: does with its part what the leading rank's
/// Client orders, on a thread of its own.
class RankClient {
 public:
  /// Takes an answer to the order of that number. From the client's thread.
  using Answer = std::function<void(std::uint64_t number, const std::string& answer)>;
  /// All must outlive this. `state` must have its begin() or replace() behind it.
  RankClient(RankExchange& exchange, OuterState& state, Answer answer);
  ~RankClient();
  RankClient(const RankClient&) = delete;
  RankClient& operator=(const RankClient&) = delete;

  /// An order of the leading rank, as encode() has it. From one thread, in order.
  void take(std::uint64_t number, const std::string& order);

  // Of the trainer.

  /// The rank's part of the pseudo-gradient of an outer step, which an order will ask for.
  void hand_in(std::int64_t outer_step, std::shared_ptr<const std::vector<float>> delta);
  /// The state of a fragment that has this hash, of those since the last call. Waits for it. Throws
  /// Error(kPeer) when it does not come, and what ended this client.
  std::shared_ptr<const FragmentState> state_of(int fragment, const StateHash& hash);

 private:
  struct Job {
    std::uint64_t number = 0;
    RankOrder order;
    std::stop_source cancel;
  };

  void run();
  void carry_out(const Job& job);
  void offer(const Job& job);
  void reduce(const Job& job);
  void fetch(const Job& job);
  void answer(const Job& job, RankAnswer answer);
  void note_state(int fragment);

  RankExchange& exchange_;
  OuterState& state_;
  Answer answer_;
  std::map<int, std::vector<float>> fetched_;  // by fragment; the thread's

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::stop_source reducing_, fetching_;  // the newest of each
  std::map<std::int64_t, std::shared_ptr<const std::vector<float>>> handed_in_;  // by outer step
  // By fragment: each state that it had since the trainer asked last.
  std::map<int, std::deque<std::shared_ptr<const FragmentState>>> states_;
  bool is_stopping_ = false;
  std::optional<Error> fatal_;

  std::thread thread_;
};

}  // namespace atl::island
