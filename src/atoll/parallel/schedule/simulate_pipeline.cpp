#include "atoll/parallel/schedule/simulate_pipeline.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "atoll/base/check.h"

namespace atl::parallel {

namespace {

// One stage and one micro-batch: what is done.
struct Progress {
  bool input_received = false, gradient_received = false;
  bool forward = false, input = false, weight = false;
};

// A tensor under way to a rank.
struct Message {
  std::size_t stage = 0;  // that made it
  std::int64_t micro_batch = 0;
  double sent_at = 0;
};

struct Rank {
  std::size_t next = 0;
  double now = 0, busy = 0;
  std::size_t in_flight = 0;
};

class Simulation {
 public:
  Simulation(const Pipeline& pipeline, std::span<const std::vector<Action>> lists,
             std::span<const PassCosts> costs)
      : pipeline_(pipeline),
        lists_(lists),
        costs_(costs),
        ranks_(lists.size()),
        progress_(pipeline.num_stages() * static_cast<std::size_t>(pipeline.num_micro_batches)),
        held_(pipeline.num_stages(), 0),
        slots_(pipeline.num_stages(), 0),
        in_flight_(lists.size(), 0),
        order_(lists.size()) {}

  PipelineUse run() {
    std::int64_t number = 0;
    while (const auto rank = next_rank()) order_[*rank].push_back(number++);
    check_end();
    PipelineUse use = {.slots = slots_, .in_flight = in_flight_, .order = order_};
    for (const Rank& rank : ranks_) use.duration = std::max(use.duration, rank.now);
    for (const Rank& rank : ranks_) use.idle_time.push_back(use.duration - rank.busy);
    return use;
  }

 private:
  using Channel = std::tuple<int, int, bool>;  // from, to, is it a gradient

  // Runs the next action of the rank that is earliest among those that need not wait.
  std::optional<std::size_t> next_rank() {
    std::vector<std::size_t> ranks(ranks_.size());
    std::iota(ranks.begin(), ranks.end(), std::size_t{0});
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](std::size_t a, std::size_t b) { return ranks_[a].now < ranks_[b].now; });
    for (const std::size_t r : ranks) {
      if (ranks_[r].next == lists_[r].size() || !try_action(r)) continue;
      ++ranks_[r].next;
      return r;
    }
    return std::nullopt;
  }

  // False: the rank waits.
  bool try_action(std::size_t r) {
    const Action& action = lists_[r][ranks_[r].next];
    check(action.stage < pipeline_.num_stages() && action.micro_batch >= 0 &&
              action.micro_batch < pipeline_.num_micro_batches &&
              pipeline_.rank_of(pipeline_.chunk_of(action.stage)) == static_cast<int>(r),
          r, "is not this rank's");
    switch (action.kind) {
      case ActionKind::kForward:
        forward(r, action);
        return true;
      case ActionKind::kBackwardInput:
        backward_input(r, action);
        return true;
      case ActionKind::kBackwardWeight:
        backward_weight(r, action);
        return true;
      case ActionKind::kSendOutput:
      case ActionKind::kSendGradient:
        send(r, action);
        return true;
      case ActionKind::kReceiveInput:
      case ActionKind::kReceiveGradient:
        return receive(r, action);
    }
    return false;
  }

  void forward(std::size_t r, const Action& action) {
    Progress& at = of(action.stage, action.micro_batch);
    check(!at.forward, r, "is repeated");
    if (receives(action)) {
      check(at.input_received, r, "has no input");
    } else if (action.stage > 0) {
      check(of(action.stage - 1, action.micro_batch).forward, r, "has no input");
    }
    slots_[action.stage] = std::max(slots_[action.stage], ++held_[action.stage]);
    at.forward = true;
    if (pipeline_.begins_chunk(action.stage)) {
      in_flight_[r] = std::max(in_flight_[r], ++ranks_[r].in_flight);
    }
    spend(r, cost_of(action).forward);
  }

  void backward_input(std::size_t r, const Action& action) {
    Progress& at = of(action.stage, action.micro_batch);
    check(at.forward, r, "comes before its F");
    check(!at.input, r, "is repeated");
    if (receives(action)) {
      check(at.gradient_received, r, "has no gradient");
    } else if (action.stage + 1 < pipeline_.num_stages()) {
      check(of(action.stage + 1, action.micro_batch).input, r, "has no gradient");
    }
    at.input = true;
    spend(r, cost_of(action).input);
  }

  void backward_weight(std::size_t r, const Action& action) {
    Progress& at = of(action.stage, action.micro_batch);
    check(at.input, r, "comes before its B");
    check(!at.weight, r, "is repeated");
    at.weight = true;
    --held_[action.stage];
    if (pipeline_.begins_chunk(action.stage)) --ranks_[r].in_flight;
    spend(r, cost_of(action).weight);
  }

  void send(std::size_t r, const Action& action) {
    const Progress& at = of(action.stage, action.micro_batch);
    const bool gradient = action.kind == ActionKind::kSendGradient;
    check(gradient ? at.input : at.forward, r, "comes before what it sends");
    check(peer_of(action) == action.peer, r, "goes to a wrong rank");
    channels_[{static_cast<int>(r), action.peer, gradient}].push_back(
        {action.stage, action.micro_batch, ranks_[r].now});
  }

  bool receive(std::size_t r, const Action& action) {
    const bool gradient = action.kind == ActionKind::kReceiveGradient;
    check(peer_of(action) == action.peer, r, "comes from a wrong rank");
    std::deque<Message>& messages = channels_[{action.peer, static_cast<int>(r), gradient}];
    if (messages.empty()) return false;
    const Message message = messages.front();
    const std::size_t maker = gradient ? action.stage + 1 : action.stage - 1;
    check(message.stage == maker && message.micro_batch == action.micro_batch, r,
          "meets what was sent for another action");
    messages.pop_front();
    Progress& at = of(action.stage, action.micro_batch);
    (gradient ? at.gradient_received : at.input_received) = true;
    ranks_[r].now = std::max(ranks_[r].now, message.sent_at);
    return true;
  }

  // The rank at the other end of a transfer, or that F's input or B's gradient comes from; -1: it
  // is made here.
  int peer_of(const Action& action) const {
    const std::size_t chunk = pipeline_.chunk_of(action.stage);
    const bool before = action.kind == ActionKind::kForward ||
                        action.kind == ActionKind::kReceiveInput ||
                        action.kind == ActionKind::kSendGradient;
    if (before) return pipeline_.begins_chunk(action.stage) ? pipeline_.rank_before(chunk) : -1;
    return pipeline_.ends_chunk(action.stage) ? pipeline_.rank_after(chunk) : -1;
  }
  bool receives(const Action& action) const { return peer_of(action) >= 0; }
  const PassCosts& cost_of(const Action& action) const {
    return costs_.size() == 1 ? costs_.front() : costs_[action.stage];
  }

  void spend(std::size_t r, double cost) {
    ranks_[r].now += cost;
    ranks_[r].busy += cost;
  }

  void check_end() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      check(ranks_[r].next == lists_[r].size(), r, "waits forever");
    }
    for (const auto& [channel, messages] : channels_) {
      ATOLL_CHECK(messages.empty(), "rank {} sends rank {} what is never received: stage {}",
                  std::get<0>(channel), std::get<1>(channel), messages.front().stage);
    }
    for (std::size_t i = 0; i < progress_.size(); ++i) {
      ATOLL_CHECK(progress_[i].weight, "micro-batch {} of stage {} is not done",
                  i / pipeline_.num_stages(), i % pipeline_.num_stages());
    }
  }

  void check(bool holds, std::size_t r, const char* what) const {
    if (holds) return;
    const Action& action = lists_[r][ranks_[r].next];
    ATOLL_CHECK(holds, "rank {}, action {}: {} of stage {} and micro-batch {} {}", r,
                ranks_[r].next, action_name(action.kind), action.stage, action.micro_batch, what);
  }

  Progress& of(std::size_t stage, std::int64_t micro_batch) {
    return progress_[static_cast<std::size_t>(micro_batch) * pipeline_.num_stages() + stage];
  }

  const Pipeline& pipeline_;
  std::span<const std::vector<Action>> lists_;
  std::span<const PassCosts> costs_;
  std::vector<Rank> ranks_;
  std::vector<Progress> progress_;
  std::map<Channel, std::deque<Message>> channels_;
  std::vector<std::size_t> held_;  // by each stage now
  std::vector<std::size_t> slots_, in_flight_;
  std::vector<std::vector<std::int64_t>> order_;
};

}  // namespace

double PipelineUse::bubble() const {
  const double idle = std::accumulate(idle_time.begin(), idle_time.end(), 0.0);
  return duration > 0 ? idle / (duration * static_cast<double>(idle_time.size())) : 0;
}

PipelineUse simulate_pipeline(const Pipeline& pipeline,
                              std::span<const std::vector<Action>> actions_of_ranks,
                              std::span<const PassCosts> costs) {
  pipeline.check();
  ATOLL_CHECK_EQ(actions_of_ranks.size(), static_cast<std::size_t>(pipeline.num_ranks));
  ATOLL_CHECK(costs.size() == 1 || costs.size() == pipeline.num_stages(), "{} costs of {} stages",
              costs.size(), pipeline.num_stages());
  return Simulation(pipeline, actions_of_ranks, costs).run();
}

PipelineUse simulate_pipeline(const Pipeline& pipeline,
                              std::span<const std::vector<Action>> actions_of_ranks,
                              const PassCosts& costs) {
  return simulate_pipeline(pipeline, actions_of_ranks, std::span(&costs, 1));
}

}  // namespace atl::parallel
