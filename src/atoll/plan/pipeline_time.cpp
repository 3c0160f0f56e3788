#include "atoll/plan/pipeline_time.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "atoll/base/check.h"

namespace atl::plan {

namespace {

using parallel::Action;
using parallel::ActionKind;

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Rank {
  std::size_t next = 0;
  double left = 0;        // seconds of the passes under way, at the speed of all at work
  double wakes = kNever;  // when the message it waits for is there
  double busy = 0;
};

class Clock {
 public:
  Clock(const parallel::Pipeline& pipeline, std::span<const std::vector<Action>> lists,
        std::span<const StageSeconds> stages, std::span<const double> transfers,
        const PipelineHosts& hosts)
      : pipeline_(pipeline),
        lists_(lists),
        stages_(stages),
        transfers_(transfers),
        hosts_(hosts),
        ranks_(lists.size()),
        active_(lists.size(), 0) {}

  PipelineTime run() {
    while (go_on()) advance();
    PipelineTime time = {.seconds = now_, .busy = {}};
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ATOLL_CHECK(ranks_[r].next == lists_[r].size(), "rank {} waits forever", r);
      time.busy.push_back(ranks_[r].busy);
    }
    return time;
  }

 private:
  using Message = std::tuple<std::size_t, std::int64_t, bool>;  // maker's stage, of what, gradient

  // Lets every rank act up to its next passes or its next wait. False: nobody is under way.
  bool go_on() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) moved = act(r) || moved;
    }
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return rank.left > 0 || rank.wakes < kNever; });
  }

  // Whether the rank did anything.
  bool act(std::size_t r) {
    Rank& rank = ranks_[r];
    if (rank.left > 0) return false;
    bool acted = false;
    rank.wakes = kNever;
    while (rank.next < lists_[r].size() && rank.left == 0) {
      const Action& action = lists_[r][rank.next];
      if (parallel::is_compute(action.kind)) {
        compute(r);
      } else if (action.kind == ActionKind::kSendOutput ||
                 action.kind == ActionKind::kSendGradient) {
        const bool gradient = action.kind == ActionKind::kSendGradient;
        arrivals_[{action.stage, action.micro_batch, gradient}] =
            now_ + transfers_[way(static_cast<int>(r), action.peer)];
        ++rank.next;
      } else if (!receive(r, action)) {
        return acted;
      }
      acted = true;
    }
    return acted;
  }
  bool receive(std::size_t r, const Action& action) {
    const bool gradient = action.kind == ActionKind::kReceiveGradient;
    const std::size_t maker = gradient ? action.stage + 1 : action.stage - 1;
    const auto found = arrivals_.find({maker, action.micro_batch, gradient});
    if (found == arrivals_.end()) return false;
    if (found->second > now_) {
      ranks_[r].wakes = found->second;
      return false;
    }
    arrivals_.erase(found);
    ++ranks_[r].next;
    return true;
  }
  // All passes up to the next transfer are one piece of work.
  void compute(std::size_t r) {
    Rank& rank = ranks_[r];
    const std::vector<Action>& list = lists_[r];
    for (; rank.next < list.size() && parallel::is_compute(list[rank.next].kind); ++rank.next) {
      const StageSeconds& stage = stages_[list[rank.next].stage];
      if (list[rank.next].kind == ActionKind::kForward) rank.left += stage.forward;
      if (list[rank.next].kind == ActionKind::kBackwardInput) rank.left += stage.input;
      if (list[rank.next].kind == ActionKind::kBackwardWeight) rank.left += stage.weight;
    }
  }
  std::size_t way(int a, int b) const {
    const int low = std::min(a, b), high = std::max(a, b);
    return static_cast<std::size_t>(high == low + 1 ? low : high);
  }

  double speed(std::size_t r) const {
    const auto at = static_cast<std::size_t>(active_[static_cast<std::size_t>(hosts_.host_of[r])]) *
                    static_cast<std::size_t>(hosts_.copies);
    return hosts_.speedups[std::min(at, hosts_.speedups.size()) - 1];
  }
  // To the next moment at which a rank ends its passes, or a message is there.
  void advance() {
    std::fill(active_.begin(), active_.end(), 0);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].left > 0) ++active_[static_cast<std::size_t>(hosts_.host_of[r])];
    }
    double step = kNever;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].left > 0) step = std::min(step, ranks_[r].left / speed(r));
      if (ranks_[r].wakes < kNever) step = std::min(step, ranks_[r].wakes - now_);
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      if (rank.left == 0) continue;
      const double done = step * speed(r);
      // What rounding leaves of a piece of work that ends now is nothing.
      rank.left = rank.left - done <= 1e-12 * rank.left ? 0 : rank.left - done;
      rank.busy += step;
    }
    now_ += step;
    for (Rank& rank : ranks_) {
      if (rank.wakes < kNever && rank.wakes - now_ < 1e-12) rank.wakes = now_;
    }
    for (auto& [message, at] : arrivals_) {
      if (at > now_ && at - now_ < 1e-12) at = now_;
    }
  }

  const parallel::Pipeline& pipeline_;
  std::span<const std::vector<Action>> lists_;
  std::span<const StageSeconds> stages_;
  std::span<const double> transfers_;
  const PipelineHosts& hosts_;
  std::vector<Rank> ranks_;
  std::vector<int> active_;  // by host
  std::map<Message, double> arrivals_;
  double now_ = 0;
};

}  // namespace

double PipelineTime::bubble() const {
  const double worked = std::accumulate(busy.begin(), busy.end(), 0.0);
  return seconds > 0 ? 1 - worked / (seconds * static_cast<double>(busy.size())) : 0;
}

PipelineTime time_pipeline(const parallel::Pipeline& pipeline,
                           std::span<const std::vector<Action>> lists,
                           std::span<const StageSeconds> stages,
                           std::span<const double> transfer_seconds, const PipelineHosts& hosts) {
  ATOLL_CHECK_EQ(lists.size(), static_cast<std::size_t>(pipeline.num_ranks));
  ATOLL_CHECK_EQ(hosts.host_of.size(), lists.size());
  ATOLL_CHECK_EQ(stages.size(), pipeline.num_stages());
  return Clock(pipeline, lists, stages, transfer_seconds, hosts).run();
}

}  // namespace atl::plan
