#include "atoll/plan/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "atoll/base/processes/cgroup.h"
#include "atoll/base/processes/machine.h"
#include "atoll/base/threads/thread_pool.h"
#include "atoll/comm/world.h"
#include "atoll/ops/peak.h"
#include "atoll/plan/measure_links.h"
#include "atoll/plan/stage_seconds.h"
#include "atoll/plan/stopwatch.h"

namespace atl::plan {

namespace {

// Products reach their rate on so many rows; more would only take longer.
constexpr std::int64_t kMostTokens = 1024;
// The head's product has a whole vocabulary's width.
constexpr double kMostFlops = 2e10;
constexpr std::int64_t kOptimizerMeasured = 4'000'000;

// A narrower model, whose largest product on one row has so many FLOPs at most: rates of wide
// products differ little, and a laptop has not the memory of a model that needs a thousand ranks.
nn::ModelConfig narrowed(nn::ModelConfig model) {
  constexpr std::int64_t kMostWeights = 16 << 20;
  while (2 * model.hidden_size * model.intermediate_size > kMostWeights &&
         model.heads.num_heads % 2 == 0 && model.hidden_size % 4 == 0) {
    model.hidden_size /= 2;
    model.intermediate_size /= 2;
    model.heads.num_heads /= 2;
    model.heads.num_kv_heads = std::max<std::int64_t>(1, model.heads.num_kv_heads / 2);
  }
  while (model.vocab_size * model.hidden_size > 4 * kMostWeights) model.vocab_size /= 2;
  return model;
}

// So many sequences at most that tokens stay below the most that are measured.
std::int64_t fewer(std::int64_t sequences, std::int64_t context, std::int64_t most) {
  return std::clamp<std::int64_t>(most / context, 1, sequences);
}

/// One rank that measures with the others.
class Meter {
 public:
  Meter(const MeasureOptions& options, comm::World& world, int threads)
      : options_(options),
        world_(world),
        device_(open_device({.threads = threads})),
        stream_(device_->open_stream()) {
    figures_.ranks_per_host = options.ranks;
    figures_.threads = threads;
    figures_.memory_gib =
        static_cast<double>(usable_memory()) / options.ranks / static_cast<double>(1 << 30);
    figures_.machine = fmt::format("{}, {} CPUs", read_machine().cpu_model, available_cpus());
  }

  Figures measure() {
    Run run = this->run();
    double copying = ops::measure_copy_bandwidth(run);  // by all ranks at once
    world_.all().all_reduce({&copying, {Dtype::kF64, {1}}}, comm::Reduce::kMin);
    figures_.bytes_per_s = copying;
    measure_ops();
    measure_speedups();
    if (world_.size() > 1) {
      figures_.host = measure_links(world_);
      figures_.overlap = measure_overlap(world_, largest_product());
    }
    measure_layers();
    return figures_;
  }

 private:
  Run run() const { return {.stream = stream_.get()}; }

  void measure_ops() {
    std::set<std::string> measured;
    for (const int tensor : options_.tensor) {
      const nn::ModelConfig model = part_of(options_.state.model, tensor);
      for (const std::int64_t sequences : options_.micro_batches) {
        const OpSizes sizes = {.sequences = fewer(sequences, context(), kMostTokens),
                               .context = context(),
                               .dtype = options_.state.build.dtype};
        measure_block(model, sizes, tensor, measured);
        measure_head(model, sizes, measured);
      }
      // Ranks that share sequences have few rows, on which products are slower.
      for (const int parts : options_.context) {
        if (parts == 1 || context() / parts < 1) continue;
        measure_block(model,
                      {.sequences = options_.micro_batches.front(),
                       .context = context() / parts,
                       .dtype = options_.state.build.dtype},
                      tensor, measured);
      }
    }
    for (const OpCase& op :
         optimizer_op_cases(options_.state.model, options_.state.build.dtype, kOptimizerMeasured)) {
      if (is_update_of(op, options_.state.optimizer)) measure(op);
    }
  }
  void measure_block(const nn::ModelConfig& model, const OpSizes& sizes, int tensor,
                     std::set<std::string>& measured) {
    for (const OpCase& op : training_op_cases(model, sizes, tensor)) {
      if (measured.insert(rate_key(op)).second) measure(op);
    }
  }
  void measure_head(const nn::ModelConfig& model, OpSizes sizes, std::set<std::string>& measured) {
    const double token = 6.0 * static_cast<double>(model.vocab_size * model.hidden_size);
    const auto tokens =
        std::clamp(static_cast<std::int64_t>(kMostFlops / token), std::int64_t{16}, sizes.tokens());
    const OpSizes few = {.sequences = 1, .context = tokens, .dtype = sizes.dtype};
    for (const OpCase& op : training_op_cases(model, few)) {
      if (op.name.starts_with("head/") && measured.insert(rate_key(op)).second) measure(op);
    }
  }
  void measure(const OpCase& op) {
    const bool is_head = op.name.starts_with("head/");
    if (is_head && op.amount > 1.5 * kMostFlops) return;
    const double seconds = time_together(world_.all(), op.prepare(run()));
    figures_.rates[rate_key(op)] = op.amount / seconds;
    if (op.bound == OpCase::Bound::kArithmetic) {
      figures_.flops_per_s = std::max(figures_.flops_per_s, op.amount / seconds);
    }
  }

  std::int64_t context() const { return options_.state.context; }

  std::function<void()> largest_product() const {
    const OpSizes sizes = {.sequences = fewer(options_.micro_batches.back(), context(), 512),
                           .context = context(),
                           .dtype = options_.state.build.dtype};
    for (const OpCase& op : training_op_cases(options_.state.model, sizes)) {
      if (op.name == "mlp_up/forward") return op.prepare(run());
    }
    ATOLL_CHECK(false, "no product to measure");
  }

  void measure_speedups() {
    const auto product = largest_product();
    std::vector<double> seconds;
    for (int active = 1; active <= world_.size(); ++active) {
      seconds.push_back(time_some(world_.all(), active, product));
    }
    figures_.speedups.clear();
    for (const double one : seconds) {
      figures_.speedups.push_back(std::max(1.0, seconds.back() / one));
    }
    figures_.speedups.back() = 1;
  }

  // The passes of a small model, against what its ops take.
  void measure_layers() {
    train::StateOptions options = options_.state;
    options.model.num_layers = std::min<std::int64_t>(options.model.num_layers, 4);
    options.micro_batch = fewer(options.micro_batch, context(), kMostTokens);
    options.training = true;
    options.offload = {};
    train::TrainState state(options);
    state.allocate(*device_);
    Run run = this->run();
    state.store().initialise(run, 1);
    const Spec spec = {Dtype::kI32, {options.micro_batch, options.context}};
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(spec.shape.num_elements()));
    std::mt19937 random(1);
    for (std::int32_t& token : tokens) {
      token = static_cast<std::int32_t>(random() %
                                        static_cast<std::uint32_t>(options.model.vocab_size));
    }
    const Batch batch = {.tokens = {tokens.data(), spec}, .targets = {tokens.data(), spec}};
    run.loss_scale = 1e-6;
    run.training = true;
    const double seconds = time_together(world_.all(), [&] {
      state.store().begin_round({});
      state.runner().train(run, batch);
    });
    const StageModel model(options.model, options.build, options.context);
    double predicted = 0;
    for (const StageSeconds& stage : model.stages(figures_, options.micro_batch)) {
      predicted += stage.forward + stage.input + stage.weight;
    }
    figures_.layer_factor = seconds / predicted;
  }

  const MeasureOptions& options_;
  comm::World& world_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Figures figures_;
};

}  // namespace

Figures measure(const MeasureOptions& options) {
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, available_cpus() / options.ranks);
  Figures figures;
  MeasureOptions narrow = options;
  narrow.state.model = narrowed(options.state.model);
  narrow.state.context = std::min<std::int64_t>(options.state.context, kMostTokens);
  const auto body = [&](comm::World& world) {
    Figures mine = Meter(narrow, world, threads).measure();
    if (world.rank() == 0) figures = std::move(mine);
  };
  if (options.ranks == 1) {
    body(*comm::open_self());
  } else {
    comm::run_threads(options.ranks, {}, body);
  }
  return figures;
}

}  // namespace atl::plan
