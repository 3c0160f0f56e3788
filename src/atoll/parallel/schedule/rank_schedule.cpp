#include "atoll/parallel/schedule/rank_schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "atoll/base/check.h"
#include "atoll/parallel/schedule/simulate_pipeline.h"

namespace atl::parallel {

namespace {

using Lists = std::span<const std::vector<Action>>;

bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendOutput || kind == ActionKind::kSendGradient;
}

// The action at the other end of a transfer.
Action counterpart(const Action& action, int rank) {
  using enum ActionKind;
  switch (action.kind) {
    case kSendOutput:
      return {kReceiveInput, action.stage + 1, action.micro_batch, rank};
    case kReceiveInput:
      return {kSendOutput, action.stage - 1, action.micro_batch, rank};
    case kSendGradient:
      return {kReceiveGradient, action.stage - 1, action.micro_batch, rank};
    case kReceiveGradient:
      return {kSendGradient, action.stage + 1, action.micro_batch, rank};
    default:
      ATOLL_CHECK(false, "{} is no transfer", action_name(action.kind));
  }
}

// The pass over a chunk that ends before this tick begins there: the receive moves beside it.
std::int64_t one_pass_before(const std::vector<Action>& list, std::size_t tick) {
  while (tick > 0 && !is_compute(list[tick - 1].kind)) --tick;
  while (tick > 0 && is_compute(list[tick - 1].kind)) --tick;
  return static_cast<std::int64_t>(tick);
}

// Where the next pass after this tick has ended.
std::int64_t one_pass_after(const std::vector<Action>& list, std::size_t tick) {
  ++tick;
  while (tick < list.size() && !is_compute(list[tick].kind)) ++tick;
  while (tick < list.size() && is_compute(list[tick].kind)) ++tick;
  return static_cast<std::int64_t>(tick);
}

class Transfers {
 public:
  Transfers(const Pipeline& pipeline, Lists lists)
      : lists_(lists), order_(simulate_pipeline(pipeline, lists).order) {
    for (std::size_t r = 0; r < lists.size(); ++r) {
      for (std::size_t i = 0; i < lists[r].size(); ++i) {
        if (!is_compute(lists[r][i].kind)) ticks_[key(static_cast<int>(r), lists[r][i])] = i;
      }
    }
    for (std::size_t r = 0; r < lists.size(); ++r) begin_receives(static_cast<int>(r));
  }

  std::vector<Transfer> of(int rank) const {
    std::vector<Transfer> transfers;
    // Receives first, as each sender sends; sorting keeps that order at the same tick.
    for (const auto& [from_to, ticks] : in_order_of_sends_) {
      if (from_to.second != rank) continue;
      for (const std::size_t tick : ticks) {
        const auto at = static_cast<std::int64_t>(tick);
        transfers.push_back({at, begins_.at({rank, tick}), at});
      }
    }
    const std::vector<Action>& list = list_of(rank);
    for (std::size_t tick = 0; tick < list.size(); ++tick) {
      if (is_send(list[tick].kind)) transfers.push_back(send(rank, tick));
    }
    std::stable_sort(transfers.begin(), transfers.end(),
                     [](const Transfer& a, const Transfer& b) { return a.begin < b.begin; });
    return transfers;
  }

 private:
  using Key = std::tuple<int, ActionKind, std::size_t, std::int64_t>;

  static Key key(int rank, const Action& action) {
    return {rank, action.kind, action.stage, action.micro_batch};
  }
  const std::vector<Action>& list_of(int rank) const {
    return lists_[static_cast<std::size_t>(rank)];
  }
  std::size_t counterpart_tick(const Action& action, int rank) const {
    return ticks_.at(key(action.peer, counterpart(action, rank)));
  }

  // The receives of what `from` sends. Messages between two ranks arrive in the order of the sends:
  // a receive begins no later than those of messages behind its own.
  void begin_receives(int from) {
    const std::vector<Action>& list = list_of(from);
    std::map<int, std::int64_t> latest;
    for (std::size_t tick = list.size(); tick-- > 0;) {
      const Action& action = list[tick];
      if (!is_send(action.kind)) continue;
      const std::size_t at = counterpart_tick(action, from);
      std::int64_t begin = one_pass_before(list_of(action.peer), at);
      const auto known = latest.find(action.peer);
      if (known != latest.end()) begin = std::min(begin, known->second);
      latest[action.peer] = begin;
      begins_[{action.peer, at}] = begin;
      in_order_of_sends_[{from, action.peer}].push_back(at);
    }
    for (auto& [from_to, ticks] : in_order_of_sends_) {
      if (from_to.first == from) std::reverse(ticks.begin(), ticks.end());
    }
  }

  Transfer send(int rank, std::size_t tick) const {
    const std::vector<Action>& list = list_of(rank);
    const Action& action = list[tick];
    const std::size_t receive = counterpart_tick(action, rank);
    const std::int64_t posted = begins_.at({action.peer, receive});
    const std::vector<std::int64_t>& mine = order_[static_cast<std::size_t>(rank)];
    const std::int64_t posted_at =
        order_[static_cast<std::size_t>(action.peer)][static_cast<std::size_t>(posted)];
    const auto safe = std::upper_bound(mine.begin(), mine.end(), posted_at) - mine.begin();
    return {static_cast<std::int64_t>(tick), static_cast<std::int64_t>(tick),
            std::max<std::int64_t>(one_pass_after(list, tick), safe)};
  }

  Lists lists_;
  std::vector<std::vector<std::int64_t>> order_;
  std::map<Key, std::size_t> ticks_;                            // of transfers
  std::map<std::pair<int, std::size_t>, std::int64_t> begins_;  // of receives, by rank and tick
  std::map<std::pair<int, int>, std::vector<std::size_t>> in_order_of_sends_;  // their receives
};

}  // namespace

RankSchedule rank_schedule(const Pipeline& pipeline, Lists actions_of_ranks, int rank) {
  RankSchedule schedule;
  schedule.transfers = Transfers(pipeline, actions_of_ranks).of(rank);
  schedule.actions = actions_of_ranks[static_cast<std::size_t>(rank)];
  const std::vector<std::size_t> stages = pipeline.stages_of(rank);
  for (Action& action : schedule.actions) {
    const auto at = std::lower_bound(stages.begin(), stages.end(), action.stage);
    action.stage = static_cast<std::size_t>(at - stages.begin());
  }
  return schedule;
}

RankSchedule forward_schedule(const Pipeline& pipeline, int rank) {
  ATOLL_CHECK_EQ(pipeline.chunks_per_rank(), std::size_t{1});
  RankSchedule schedule;
  const auto chunk = static_cast<std::size_t>(rank);
  const ChunkPass pass = {ChunkPass::Kind::kForward, chunk, 0};
  schedule.actions = chunk_actions(pipeline, rank, {&pass, 1});
  const auto end = std::ssize(schedule.actions);
  for (std::int64_t tick = 0; tick < end; ++tick) {
    Action& action = schedule.actions[static_cast<std::size_t>(tick)];
    action.stage -= pipeline.bounds[chunk];
    if (is_compute(action.kind)) continue;
    schedule.transfers.push_back({tick, tick, is_send(action.kind) ? end : tick});
  }
  return schedule;
}

RankSchedule alone(std::vector<Action> actions) {
  for (const Action& action : actions) {
    ATOLL_CHECK(is_compute(action.kind), "a rank of its own has no peer to {}",
                action_name(action.kind));
  }
  return {std::move(actions), {}};
}

}  // namespace atl::parallel
