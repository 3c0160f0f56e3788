#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "atoll/island/client/client_options.h"
#include "atoll/island/client/member.h"
#include "atoll/island/client/rank_exchange.h"
#include "atoll/island/client/rank_orders.h"
#include "atoll/island/client/trainer_messages.h"
#include "atoll/island/outer/state.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island {

struct ClientState;

/// An island's connection to its run, on the rank that leads it: talks to the coordinator,
/// exchanges pseudo-gradients with the other islands, and moves the outer state, on threads of its
/// own; and has the island's other ranks do so with their parts. The trainer asks it between steps;
/// nothing but wait() blocks. Errors that end this island's part in the run are thrown by the next
/// call.
class Client {
 public:
  /// Connects. `state` must have its begin() or replace() behind it, and outlive this, as must
  /// `exchange`, which is this rank's, and `others`; null: this rank has all of the state. `holds`:
  /// batches that a checkpoint says it was leased and that are not committed; `in_round`: it goes
  /// on to train on some of them.
  Client(const ClientOptions& options, OuterState& state, RankExchange& exchange,
         OtherRanks* others, std::vector<BatchRange> holds, bool in_round);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// The next event for the trainer: a change, or what to train on after it. Null: none.
  std::unique_ptr<ClientNews> next_news();
  /// Freezes and offers what was trained.
  void hand_in(Contribution contribution);
  /// Reports the recent speed to the coordinator.
  void tell_speed(std::int64_t inner_steps, double batches_per_second);
  /// Waits until there may be news, a tenth of a second at most.
  void wait();
  /// Whether the run is over: all batches are committed.
  bool is_finished();
  /// Islands that are active; at least 1.
  int num_active();
  /// Leaves the run: the batches that it holds return to the others.
  void leave(const std::string& why);
  /// Of a run that is over: this island has saved the final model.
  void tell_saved();
  /// Of a run that is over: whether no other island needs this one any more, because all have saved
  /// the final model, or because it has waited long enough. What ended the client is logged.
  bool may_go();

 private:
  std::unique_ptr<ClientState> state_;
};

}  // namespace atl::island
