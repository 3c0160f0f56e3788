// How long the ranks of a pipeline are idle, beside the formulas: the Runner runs each schedule
// with stages that wait on a clock in place of computing, so that more ranks than CPUs show the
// real order of passes and transfers.
//
//   bubble_bench --ranks 2,4,8 --forward-ms 50 --input-ms 50 --weight-ms 30
//
// Ranks are threads. A pass lasts as long as its wait really took, which is measured too: the
// bubble is a rank's time from the beginning of a step to the end of the last rank less its own
// passes, and the formula gets the mean passes as measured.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "atoll/comm/mesh.h"
#include "atoll/comm/threads/transport.h"
#include "atoll/comm/world.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/schedule/schedules.h"
#include "atoll/parallel/schedule/stage_cut.h"
#include "atoll/parallel/store/store_single.h"

namespace atl::bench {
namespace {

using parallel::ActionKind;
using parallel::Pipeline;
using parallel::PipelineSchedule;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kWidth = 64;

struct Options {
  std::vector<int> ranks{2, 4, 8};
  std::vector<std::string> schedules{"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
  int batches_a_rank = 2;  // micro-batches of a step, for each rank
  int steps = 3;
  double forward_ms = 50, input_ms = 50, weight_ms = 30;
};

// What the passes of one rank took, by kind.
struct Times {
  std::vector<double> forward, input, weight;

  double sum() const {
    double all = 0;
    for (const auto* kind : {&forward, &input, &weight}) {
      for (const double seconds : *kind) all += seconds;
    }
    return all;
  }
};

// A stage that takes as long as it is told, and computes nothing.
class TimedStage final : public nn::Layer {
 public:
  TimedStage(const Options& options, int chunks, bool is_first, bool is_last, std::string name)
      : options_(options), chunks_(chunks), is_first_(is_first), is_last_(is_last) {
    param_.name = std::move(name);
    param_.spec = {Dtype::kF32, {kWidth}};
  }
  void count(Times& times) { times_ = &times; }

  nn::Footprint plan(Spec x) const override {
    const std::int64_t batch = x.shape.dim(0), length = x.shape.dim(1);
    nn::Footprint footprint;
    footprint.y = {Dtype::kF32, {batch, length, kWidth}};
    if (is_last_) footprint.y = {Dtype::kF32, {batch, length}};
    if (!is_first_) footprint.need_x = nn::kForWeight;
    footprint.need_dy = is_last_ ? 0 : nn::kForInput | nn::kForWeight;
    return footprint;
  }
  void forward(Run& /*run*/, const nn::Pass& /*pass*/) override {
    wait(options_.forward_ms, times_->forward);
  }
  void backward_input(Run& /*run*/, const nn::Pass& /*pass*/) override {
    wait(options_.input_ms, times_->input);
  }
  void backward_weight(Run& /*run*/, const nn::Pass& /*pass*/) override {
    wait(options_.weight_ms, times_->weight);
  }
  void visit(nn::ParamVisitor& visitor) override { visitor.param(param_); }

 private:
  // A rank's chunks share its time, so that a micro-batch costs it the same in every schedule.
  void wait(double ms, std::vector<double>& took) const {
    const Clock::time_point start = Clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms / chunks_));
    took.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }

  const Options& options_;
  int chunks_;
  bool is_first_, is_last_;
  nn::Param param_;
  Times* times_ = nullptr;
};

std::unique_ptr<nn::Model> timed_model(const Options& options, int ranks, int chunks) {
  auto model = std::make_unique<nn::Model>();
  model->config.hidden_size = kWidth;
  const int stages = ranks * chunks;
  for (int i = 0; i < stages; ++i) {
    model->stage_names.push_back(fmt::format("stage {}", i));
    model->stages.push_back(std::make_unique<TimedStage>(options, chunks, i == 0, i + 1 == stages,
                                                         model->stage_names.back()));
  }
  return model;
}

// One step of one rank.
struct Step {
  Clock::time_point begin, end;
  Times times;
};

std::vector<Step> run_rank(comm::World& world, const Options& options,
                           const PipelineSchedule& schedule) {
  const int ranks = world.size(), chunks = schedule.min_chunks;
  comm::Mesh mesh(world, {{.name = "pp", .size = ranks, .point_to_point = true}});
  Pipeline pipeline = {ranks, std::int64_t{ranks} * options.batches_a_rank, {}, schedule.folded};
  for (int c = 0; c <= ranks * chunks; ++c) pipeline.bounds.push_back(static_cast<std::size_t>(c));
  const auto lists = actions_of_ranks(schedule, pipeline);
  const auto model = timed_model(options, ranks, chunks);
  parallel::keep_stages(*model, pipeline, world.rank());
  const auto device = open_device({.threads = 1});
  Stream stream(*device);
  parallel::SingleStore store(*model, /*training=*/true);
  parallel::Runner runner(*model, store, parallel::Use::kTrain, 1, 1,
                          rank_schedule(pipeline, lists, world.rank()));
  runner.connect(mesh.group("pp"));
  MemoryPlan plan;
  store.request(plan, runner.schedule());
  runner.request(plan);
  plan.place();
  const Arena arena(*device, plan);
  store.bind(arena);
  runner.bind(arena);
  std::int32_t zero = 0;
  const Tensor token(&zero, {Dtype::kI32, {1, 1}});
  const std::vector<Batch> batches(static_cast<std::size_t>(pipeline.num_micro_batches),
                                   Batch{.tokens = token, .targets = token});
  std::vector<Step> steps(static_cast<std::size_t>(options.steps));
  for (Step& step : steps) {
    for (const auto& stage : model->stages) {
      static_cast<TimedStage&>(*stage).count(step.times);
    }
    store.begin_round({});
    world.all().barrier();
    step.begin = Clock::now();
    runner.forward_backward({.stream = &stream}, batches);
    step.end = Clock::now();
  }
  return steps;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// The bubble of a rank by the papers' formulas (docs/pipeline-parallel.md), of passes of a chunk.
double formula(const PipelineSchedule& schedule, int ranks, double f, double b, double w) {
  const double others = ranks - 1;
  const std::string name = schedule.name;
  if (name == "zb-h1") return others * (f + b - w);
  if (name == "zb-v") return others * f;  // of equal passes
  return others * (f + b + w);
}

void measure(const Options& options, const PipelineSchedule& schedule, int ranks) {
  std::vector<std::vector<Step>> by_rank(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  comm::run_threads(ranks, {.timeout_s = 600}, [&](comm::World& world) {
    std::vector<Step> steps = run_rank(world, options, schedule);
    const std::lock_guard lock(mutex);
    by_rank[static_cast<std::size_t>(world.rank())] = std::move(steps);
  });
  // Neighbours on the machine only ever add to a bubble: of the steps the one with the least.
  double least = 0, expected = 0, whole = 0;
  for (std::size_t s = 0; s < static_cast<std::size_t>(options.steps); ++s) {
    Clock::time_point begin = by_rank[0][s].begin, end = by_rank[0][s].end;
    Times all;
    for (const std::vector<Step>& steps : by_rank) {
      begin = std::max(begin, steps[s].begin);
      end = std::max(end, steps[s].end);
      for (auto kind : {&Times::forward, &Times::input, &Times::weight}) {
        const std::vector<double>& took = steps[s].times.*kind;
        (all.*kind).insert((all.*kind).end(), took.begin(), took.end());
      }
    }
    const double seconds = std::chrono::duration<double>(end - begin).count();
    const double idle = seconds - all.sum() / ranks;
    if (s > 0 && idle >= least) continue;
    least = idle;
    whole = seconds;
    expected = formula(schedule, ranks, mean(all.forward), mean(all.input), mean(all.weight));
  }
  fmt::print("| {} | {} | {} | {:.0f} | {:.1f} | {:.1f} | {:+.1f}% | {:+.2f}% |\n", schedule.name,
             ranks, ranks * options.batches_a_rank, 1e3 * whole, 1e3 * least, 1e3 * expected,
             100 * (least / expected - 1), 100 * (least - expected) / whole);
  std::fflush(stdout);
}

void run(const Options& options) {
  fmt::print(
      "| schedule | ranks | micro-batches | step, ms | bubble, ms | formula, ms | off | "
      "of the step |\n|---|---|---|---|---|---|---|---|\n");
  for (const std::string& name : options.schedules) {
    for (const int ranks : options.ranks) measure(options, parallel::find_schedule(name), ranks);
  }
}

}  // namespace
}  // namespace atl::bench

int main(int argc, char** argv) {
  CLI::App app("The bubble of each pipeline schedule, on stages that wait on a clock");
  atl::bench::Options options;
  app.add_option("--ranks", options.ranks, "of a pipeline")
      ->delimiter(',')
      ->check(CLI::Range(2, 64));
  app.add_option("--schedules", options.schedules)->delimiter(',');
  app.add_option("--batches-a-rank", options.batches_a_rank, "micro-batches a step, for each rank")
      ->check(CLI::Range(1, 64));
  app.add_option("--steps", options.steps)->check(CLI::Range(1, 100));
  app.add_option("--forward-ms", options.forward_ms)->check(CLI::Range(0.1, 1e4));
  app.add_option("--input-ms", options.input_ms)->check(CLI::Range(0.1, 1e4));
  app.add_option("--weight-ms", options.weight_ms)->check(CLI::Range(0.1, 1e4));
  CLI11_PARSE(app, argc, argv);
  try {
    atl::bench::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
