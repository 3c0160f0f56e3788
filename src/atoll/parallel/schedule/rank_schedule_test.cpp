#include "atoll/parallel/schedule/rank_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <map>

#include "atoll/base/error.h"
#include "atoll/parallel/schedule/schedules.h"

namespace atl::parallel {
namespace {

bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendOutput || kind == ActionKind::kSendGradient;
}

// Some schedule over unequal chunks.
std::vector<RankSchedule> some_ranks() {
  const PipelineSchedule& schedule =
      pipeline_schedules()[*rc::gen::inRange<std::size_t>(0, pipeline_schedules().size())];
  const int ranks = *rc::gen::inRange(1, 7);
  const int chunks = *rc::gen::inRange(schedule.min_chunks, std::min(schedule.max_chunks, 4) + 1);
  auto micro_batches = *rc::gen::inRange<std::int64_t>(1, 13);
  if (schedule.whole_rounds) micro_batches *= ranks;
  Pipeline pipeline = {ranks, micro_batches, {0}, schedule.folded};
  for (int c = 0; c < ranks * chunks; ++c) {
    pipeline.bounds.push_back(pipeline.bounds.back() + *rc::gen::inRange<std::size_t>(1, 4));
  }
  std::vector<RankSchedule> result;
  const auto lists = actions_of_ranks(schedule, pipeline);
  for (int r = 0; r < ranks; ++r) result.push_back(rank_schedule(pipeline, lists, r));
  return result;
}

// What the Runner does, without data: a message moves once it is the oldest between its two ranks
// and both sides have begun it. No send is ever ahead of its receive: the worst transport.
class Rendezvous {
 public:
  explicit Rendezvous(const std::vector<RankSchedule>& ranks) : ranks_(ranks), at_(ranks.size()) {}

  // Whether all ranks come to their ends.
  bool run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        while (at_[r].tick <= length(r) && step(r)) moved = true;
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (at_[r].tick <= length(r)) return false;
    }
    return true;
  }

 private:
  struct Walk {
    std::int64_t tick = 0;
    std::size_t next = 0;  // transfer to begin
  };
  struct Pair {
    std::deque<Action> sends, receives;
  };

  std::int64_t length(std::size_t r) const { return std::ssize(ranks_[r].actions); }
  const Action& action(std::size_t r, std::int64_t tick) const {
    return ranks_[r].actions[static_cast<std::size_t>(tick)];
  }

  // One tick, as Runner::transfer_until has it; false: the rank waits.
  bool step(std::size_t r) {
    Walk& at = at_[r];
    for (const Transfer& transfer : ranks_[r].transfers) {
      const bool due = transfer.end == at.tick && is_send(action(r, transfer.tick).kind);
      if (due && !is_done(r, transfer.tick)) return false;
    }
    for (; at.next < ranks_[r].transfers.size(); ++at.next) {
      const Transfer& transfer = ranks_[r].transfers[at.next];
      if (transfer.begin > at.tick) break;
      begin(r, transfer.tick);
    }
    if (at.tick < length(r)) {
      const Action& now = action(r, at.tick);
      if (!is_compute(now.kind) && !is_send(now.kind) && !is_done(r, at.tick)) return false;
    }
    ++at.tick;
    return true;
  }

  void begin(std::size_t r, std::int64_t tick) {
    const Action& what = action(r, tick);
    const auto self = static_cast<int>(r);
    const bool sends = is_send(what.kind);
    const auto key = sends ? std::pair(self, what.peer) : std::pair(what.peer, self);
    Pair& pair = pairs_[key];
    (sends ? pair.sends : pair.receives).push_back(what);
    ticks_[key][sends ? 0 : 1].push_back(tick);
    if (pair.sends.empty() || pair.receives.empty()) return;
    // What moves must be what both sides mean.
    const bool gradient = pair.sends.front().kind == ActionKind::kSendGradient;
    EXPECT_EQ(pair.receives.front().kind,
              gradient ? ActionKind::kReceiveGradient : ActionKind::kReceiveInput);
    EXPECT_EQ(pair.receives.front().micro_batch, pair.sends.front().micro_batch);
    pair.sends.pop_front();
    pair.receives.pop_front();
    for (const std::size_t side : {0, 1}) {
      const int rank = side == 0 ? key.first : key.second;
      done_[{rank, ticks_[key][side].front()}] = true;
      ticks_[key][side].pop_front();
    }
  }
  bool is_done(std::size_t r, std::int64_t tick) { return done_[{static_cast<int>(r), tick}]; }

  const std::vector<RankSchedule>& ranks_;
  std::vector<Walk> at_;
  std::map<std::pair<int, int>, Pair> pairs_;
  std::map<std::pair<int, int>, std::array<std::deque<std::int64_t>, 2>> ticks_;
  std::map<std::pair<int, std::int64_t>, bool> done_;
};

RC_GTEST_PROP(RankSchedule, CannotWaitInACircleWhateverTheTransport, ()) {
  const std::vector<RankSchedule> ranks = some_ranks();
  RC_ASSERT(Rendezvous(ranks).run());
}

RC_GTEST_PROP(RankSchedule, EveryTransferHasItsTime, ()) {
  for (const RankSchedule& rank : some_ranks()) {
    std::size_t transfers = 0;
    for (const Action& action : rank.actions) transfers += is_compute(action.kind) ? 0 : 1;
    RC_ASSERT(transfers == rank.transfers.size());
    std::int64_t begun = 0;
    for (const Transfer& at : rank.transfers) {
      const bool sends = is_send(rank.actions[static_cast<std::size_t>(at.tick)].kind);
      RC_ASSERT(at.begin >= begun && at.begin <= at.tick);
      RC_ASSERT((sends ? at.begin == at.tick && at.end > at.tick : at.end == at.tick));
      RC_ASSERT(at.end <= std::ssize(rank.actions));
      begun = at.begin;
    }
  }
}

// Rank 1 of two, 1F1B: the next input moves beside the pass before it, and so do gradients back.
TEST(RankSchedule, AReceiveBeginsOnePassAhead) {
  const Pipeline pipeline = {2, 3, {0, 1, 2}};
  const auto lists = actions_of_ranks(find_schedule("1f1b"), pipeline);
  // 0 receive, 1 F, 2 B, 3 W, 4 send, 5 receive, 6 F, 7 B, 8 W, 9 send, ...
  const RankSchedule last = rank_schedule(pipeline, lists, 1);
  ASSERT_EQ(last.transfers.size(), 6u);
  EXPECT_EQ(last.transfers[0], (Transfer{0, 0, 0}));
  EXPECT_EQ(last.transfers[1], (Transfer{5, 1, 5}));
  EXPECT_EQ(last.transfers[2].tick, 4);
  EXPECT_EQ(last.transfers[2].end, 9);  // beside F, B and W of the next micro-batch
  EXPECT_EQ(last.transfers[3], (Transfer{10, 6, 10}));
}

TEST(RankSchedule, StagesHaveTheNumbersOfTheRank) {
  const Pipeline pipeline = {2, 2, {0, 2, 3, 5, 6}};  // rank 1 has stages 2 and 5
  const auto lists = actions_of_ranks(find_schedule("interleaved"), pipeline);
  for (const Action& action : rank_schedule(pipeline, lists, 1).actions) {
    EXPECT_LT(action.stage, 2u);
  }
  const RankSchedule first = rank_schedule(pipeline, lists, 0);
  std::size_t highest = 0;
  for (const Action& action : first.actions) highest = std::max(highest, action.stage);
  EXPECT_EQ(highest, 3u);
}

}  // namespace
}  // namespace atl::parallel
