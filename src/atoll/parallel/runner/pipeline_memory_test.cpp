// The memory of a pipeline's ranks, against a count that knows nothing of lives.

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "atoll/parallel/schedule/pipeline_testing.h"

namespace atl::parallel {
namespace {

// A tensor of a micro-batch: what it is of which stage.
using TensorName = std::tuple<std::string, std::size_t, std::int64_t>;

// Counts bytes without lives: which tensors does each tick touch? A tensor takes memory from the
// first tick to the last.
std::size_t peak_of_touches(const std::vector<StagePlan>& stages, const RankSchedule& list) {
  std::map<TensorName, std::pair<TickSpan, std::size_t>> touched;
  const auto touch = [&](const char* what, std::size_t stage, std::int64_t i,
                         std::span<const Spec> specs, std::int64_t first, std::int64_t last) {
    std::size_t bytes = 0;
    for (const Spec& spec : specs) bytes += align_up(spec.bytes());
    const auto [at, is_new] =
        touched.emplace(TensorName(what, stage, i), std::pair(TickSpan{first, last}, bytes));
    TickSpan& span = at->second.first;
    span = {std::min(span.first, first), std::max(span.last, last)};
  };
  std::map<std::int64_t, Transfer> transfers;
  for (const Transfer& at : list.transfers) transfers[at.tick] = at;
  for (std::size_t t = 0; t < list.actions.size(); ++t) {
    const auto& [kind, s, i, peer] = list.actions[t];
    const StagePlan& at = stages[s];
    const nn::Footprint& needs = at.footprint;
    const Spec x[] = {at.input}, y[] = {needs.y};
    const bool is_head = s + 1 == stages.size() && !at.sends_output;
    const auto tick = static_cast<std::int64_t>(t);
    std::int64_t first = tick, last = tick;
    if (transfers.contains(tick)) first = transfers[tick].begin;
    if (transfers.contains(tick)) last = std::max(tick, transfers[tick].end - 1);
    // The edges before and after the stage, by the stage that has them.
    const auto edge = [&](bool before, bool gradient) {
      if (before && at.receives_input) return touch(gradient ? "dx" : "x", s, i, x, first, last);
      if (before && s == 0) return;
      if (!before && is_head) return;
      touch(gradient ? "dy" : "y", before ? s - 1 : s, i, before ? x : y, first, last);
    };
    const auto reads = [&](unsigned need, unsigned pass) { return (need & pass) != 0; };
    switch (kind) {
      case ActionKind::kReceiveInput:
      case ActionKind::kSendGradient:
        edge(true, kind == ActionKind::kSendGradient);
        break;
      case ActionKind::kSendOutput:
      case ActionKind::kReceiveGradient:
        edge(false, kind == ActionKind::kReceiveGradient);
        break;
      case ActionKind::kForward:
        edge(true, false);
        edge(false, false);
        touch("kept", s, i, needs.kept, tick, tick);
        break;
      case ActionKind::kBackwardInput:
      case ActionKind::kBackwardWeight: {
        const bool input = kind == ActionKind::kBackwardInput;
        const unsigned pass = input ? nn::kForInput : nn::kForWeight;
        if (input || reads(needs.need_dy, pass)) edge(false, true);
        if (input) edge(true, true);
        if (reads(needs.need_x, pass)) edge(true, false);
        if (reads(needs.need_y, pass)) edge(false, false);
        touch("kept", s, i, needs.kept, tick, tick);
        touch("owed", s, i, needs.owed, tick, tick);
      }
    }
  }
  std::size_t peak = 0;
  for (std::int64_t t = 0; t < std::ssize(list.actions); ++t) {
    std::size_t live = 0;
    for (const auto& [name, use] : touched) {
      if (use.first.first <= t && t <= use.first.last) live += use.second;
    }
    peak = std::max(peak, live);
  }
  return peak;
}

// At the worst tick. The arena takes a little more: what is lost between tensors of different
// sizes.
TEST(PipelineMemory, IsWhatTheListNeeds) {
  for (const nn::RecomputeMode recompute : {nn::RecomputeMode::kNone, nn::RecomputeMode::kFull}) {
    const ModelSetup setup = {.recompute = recompute};
    for (const PipelineSchedule& schedule : pipeline_schedules()) {
      SCOPED_TRACE(schedule.name);
      const Pipeline pipeline = some_pipeline(schedule, 4, 12, build(setup)->stages.size());
      const auto lists = actions_of_ranks(schedule, pipeline);
      for (int r = 0; r < 4; ++r) {
        const RankSchedule list = rank_schedule(pipeline, lists, r);
        const auto model = build(setup);
        keep_stages(*model, pipeline, r);
        SingleStore store(*model, true);
        Runner runner(*model, store, Use::kTrain, kBatch, kLength, list);
        MemoryPlan plan;
        runner.request(plan);
        plan.place();
        const auto stages =
            read_stages(*model, Use::kTrain, {Dtype::kI32, {kBatch, kLength}}, list.actions);
        std::size_t losses = 0;
        if (runner.has_losses()) losses = 12 * align_up(stages.back().footprint.y.bytes());
        EXPECT_EQ(plan.peak_bytes("activations"), peak_of_touches(stages, list) + losses) << r;
      }
    }
  }
}

}  // namespace
}  // namespace atl::parallel
