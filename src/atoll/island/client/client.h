#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "atoll/island/client/member.h"
#include "atoll/island/client/rank_exchange.h"
#include "atoll/island/client/rank_orders.h"
#include "atoll/island/outer/state.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// Who this island is and where its run is coordinated.
struct ClientOptions {
  std::string name;
  std::string coordinator;                        ///< HOST:PORT
  std::string address;                            ///< join_addresses() of all its ranks
  std::optional<std::filesystem::path> identity;  ///< see wire::ServerOptions
  std::optional<std::filesystem::path> secret = {};
  RunIdentity run;
  RunPlan plan;
  double give_up_after_s = 600;  ///< without a coordinator: an error
  bool has_final_model = false;  ///< from its checkpoint: the run has ended, see MemberOptions
};

/// What an island has trained since its last contribution that was committed.
struct Contribution {
  std::int64_t outer_step = 0;  ///< that it is for: the changes seen so far lead to it
  int fragment = 0;
  std::shared_ptr<const std::vector<float>> delta;  ///< packed, the leading rank's part
  StateHash base_hash;                              ///< of the FragmentState that it grew from
  std::int64_t tokens = 0;
  std::vector<BatchRange> consumed;
  double loss = 0;           ///< mean over the tokens
  double step_seconds = 0;   ///< of an inner step, lately
  double learning_rate = 0;  ///< of the last one
};

/// The outer state has moved.
struct OuterChange {
  enum class Kind {
    kCommitted,  ///< by an outer step
    kReplaced,   ///< by state that was fetched, for one fragment or all
  };
  Kind kind = Kind::kCommitted;
  std::int64_t outer_step = 0;  ///< of kCommitted: that one; of kReplaced: those that are in it
  bool drops_work = false;      ///< of kReplaced: what was trained and not committed is void
  int fragment = 0;             ///< of kCommitted
  bool contributed = false;     ///< this island's pseudo-gradient is in it
  std::shared_ptr<const FragmentState> state;  ///< of the fragment now; null for kReplaced
  int num_participants = 0;
  std::int64_t tokens = 0;      ///< of all of them
  double exchange_seconds = 0;  ///< from the coordinator's call to the commit
  /// With gossip: how far its anchor was from its partners', relative; else 0.
  double spread = 0;
  std::uint64_t sent_bytes = 0;  ///< payload, by this island, since the change before
  std::uint64_t received_bytes = 0;
};

/// What the trainer is told, in this order.
using ClientNews = std::variant<OuterChange, StartRound, UseSchedule>;

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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::island
