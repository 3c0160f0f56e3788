#include "atoll/plan/estimate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/optim/registry.h"
#include "atoll/parallel/schedule/schedules.h"
#include "atoll/parallel/schedule/stage_costs.h"
#include "atoll/plan/pipeline_time.h"

namespace atl::plan {

namespace {

// Exchanges of a few numbers in a step: losses, norm, what is finite, facts of the ranks.
constexpr double kSmallExchanges = 6;

/// The way between the members of a group that lie `stride` ranks apart.
class Way {
 public:
  Way(const Figures& figures, int size, int stride)
      : size_(size),
        here_(std::min(size, std::max(1, figures.ranks_per_host / stride))),
        link_(here_ == size ? host_link(figures, size) : figures.network) {
    if (here_ == size) return;
    // All ranks of a host use its link at once; what stays on the host does not cross it.
    const double crossing = static_cast<double>(size - here_) / std::max(1, size - 1);
    share_ = 1 / (crossing * figures.ranks_per_host);
  }

  bool is_network() const { return here_ < size_; }
  double latency() const { return link_.latency_s; }
  /// Of what each rank sends when all have `bytes` in the end, or at the beginning.
  double sent(double bytes) const { return bytes * (size_ - 1) / size_; }
  double gather(double bytes) const {
    return size_ == 1 ? 0 : link_.latency_s + sent(bytes) / (link_.gather_bytes_per_s * share_);
  }
  double reduce(double bytes) const {
    return size_ == 1 ? 0 : link_.latency_s + sent(bytes) / (link_.reduce_bytes_per_s * share_);
  }
  /// Two, one each way, in which each rank sends so many bytes together.
  double all_to_all(double bytes) const {
    return 2 * link_.latency_s + bytes / (link_.gather_bytes_per_s * share_);
  }
  double message(double bytes) const {
    return link_.latency_s + bytes / (link_.send_bytes_per_s * share_);
  }

 private:
  int size_, here_;  // members, and those of one host
  Link link_;
  double share_ = 1;  // of the link's rate that each rank has
};

/// Passes as the ranks of one micro-batch make them: what these send each other is included.
struct Passes {
  std::vector<StageSeconds> stages;
  // Of one micro-batch through all stages.
  double tensor_seconds = 0, tensor_bytes = 0;
  double context_seconds = 0, context_bytes = 0;
  double expert_seconds = 0, expert_bytes = 0;
};

// Two all-to-alls forward and two backward; what is computed again is sent again.
void add_context(const Figures& figures, const Layout& layout, const StageModel& model,
                 Passes& passes) {
  if (layout.context == 1) return;
  const Way way(figures, layout.context, layout.tensor * layout.experts * layout.stages);
  const std::vector<ContextBytes> sent = model.context_bytes(layout.micro_batch);
  for (std::size_t i = 0; i < passes.stages.size(); ++i) {
    if (sent[i].forward == 0) continue;
    const double forward = way.all_to_all(sent[i].forward);
    const double input = forward * sent[i].input / sent[i].forward;
    passes.stages[i].forward += forward;
    passes.stages[i].input += input;
    passes.context_seconds += forward + input;
    passes.context_bytes += sent[i].forward + sent[i].input;
  }
}

// There and back forward and backward, and there again for W.
void add_experts(const Figures& figures, const Layout& layout, const StageModel& model,
                 Passes& passes) {
  if (layout.experts == 1) return;
  const Way way(figures, layout.experts, layout.tensor);
  const std::vector<ExpertBytes> sent = model.expert_bytes(layout.micro_batch);
  for (std::size_t i = 0; i < passes.stages.size(); ++i) {
    if (sent[i].forward == 0) continue;
    const double forward = way.all_to_all(sent[i].forward);
    const double input = forward * sent[i].input / sent[i].forward;
    const double weight = forward * sent[i].weight / sent[i].forward;
    passes.stages[i].forward += forward;
    passes.stages[i].input += input;
    passes.stages[i].weight += weight;
    passes.expert_seconds += forward + input + weight;
    passes.expert_bytes += sent[i].forward + sent[i].input + sent[i].weight;
  }
}

Passes passes_of(const Figures& figures, const Layout& layout, const StageModel& model) {
  Passes passes;
  passes.stages = model.stages(figures, layout.micro_batch);
  add_context(figures, layout, model, passes);
  add_experts(figures, layout, model, passes);
  if (layout.tensor == 1) return passes;
  const Way way(figures, layout.tensor, 1);
  const double rows = model.edge_bytes(layout.micro_batch);
  const std::vector<RowTransfers> transfers = model.transfers();
  for (std::size_t i = 0; i < passes.stages.size(); ++i) {
    const RowTransfers& at = transfers[i];
    const double forward =
        at.forward_gathers * way.gather(rows) + at.forward_sums * way.reduce(rows);
    const double input = at.input_gathers * way.gather(rows) + at.input_sums * way.reduce(rows);
    const double weight = at.weight_gathers * way.gather(rows);
    passes.stages[i].forward += forward;
    passes.stages[i].input += input;
    passes.stages[i].weight += weight;
    passes.tensor_seconds += forward + input + weight;
    passes.tensor_bytes += (at.forward_gathers + at.forward_sums + at.input_gathers +
                            at.input_sums + at.weight_gathers) *
                           way.sent(rows);
  }
  return passes;
}

double sum_forward(std::span<const StageSeconds> stages) {
  return std::accumulate(stages.begin(), stages.end(), 0.0,
                         [](double sum, const StageSeconds& at) { return sum + at.forward; });
}
double sum_backward(std::span<const StageSeconds> stages) {
  return std::accumulate(stages.begin(), stages.end(), 0.0, [](double sum, const StageSeconds& at) {
    return sum + at.input + at.weight;
  });
}

/// The time of one step, part by part.
class Estimator {
 public:
  Estimator(const Figures& figures, const Layout& layout, const train::StateOptions& options,
            const StageModel& model, std::int64_t micro_batches)
      : figures_(figures),
        layout_(layout),
        options_(options),
        model_(model),
        passes_(passes_of(figures, layout, model)),
        micro_batches_(micro_batches) {}

  Estimate run() {
    layout_.stages > 1 ? pipeline() : sequential();
    share_parameters();
    update();
    const Way all(figures_, layout_.ranks(), 1);
    result_.step_seconds = result_.passes_seconds + result_.reduce_seconds +
                           result_.update_seconds + kSmallExchanges * all.gather(8);
    return result_;
  }

 private:
  void sequential() {
    const std::int64_t rounds = (micro_batches_ + layout_.takers() - 1) / layout_.takers();
    rounds_ = static_cast<double>(rounds);
    forward_ = sum_forward(passes_.stages);
    backward_ = sum_backward(passes_.stages);
    result_.passes_seconds = rounds_ * (forward_ + backward_);
    result_.tensor_seconds = rounds_ * passes_.tensor_seconds;
    result_.sent.tensor = rounds_ * passes_.tensor_bytes;
    result_.context_seconds = rounds_ * passes_.context_seconds;
    result_.sent.context = rounds_ * passes_.context_bytes;
    result_.expert_seconds = rounds_ * passes_.expert_seconds;
    result_.sent.experts = rounds_ * passes_.expert_bytes;
    const std::span<const double> elements = model_.elements();
    held_.assign(elements.begin(), elements.end());
  }

  void pipeline() {
    const parallel::PipelineSchedule& schedule = parallel::find_schedule(layout_.schedule);
    const int chunks = layout_.chunks == 0 ? schedule.min_chunks : layout_.chunks;
    const auto costs = parallel::stage_costs(model_.model(), model_.context());
    const parallel::Pipeline pipeline = {
        layout_.stages, micro_batches_ / layout_.takers(),
        parallel::balanced_bounds(
            costs, static_cast<std::size_t>(layout_.stages) * static_cast<std::size_t>(chunks)),
        schedule.folded};
    const auto lists = parallel::actions_of_ranks(schedule, pipeline);
    const double edge = model_.edge_bytes(layout_.micro_batch) / layout_.tensor;
    const PipelineTime time = time_pipeline(pipeline, lists, passes_.stages, ways(edge), hosts());
    result_.passes_seconds = time.seconds;
    result_.bubble = time.bubble();
    const auto through = static_cast<double>(pipeline.num_micro_batches);
    result_.tensor_seconds = through * passes_.tensor_seconds / layout_.stages;
    result_.sent.tensor = through * passes_.tensor_bytes / layout_.stages;
    result_.context_seconds = through * passes_.context_seconds / layout_.stages;
    result_.sent.context = through * passes_.context_bytes / layout_.stages;
    result_.expert_seconds = through * passes_.expert_seconds / layout_.stages;
    result_.sent.experts = through * passes_.expert_bytes / layout_.stages;
    // An inner rank sends outputs on and gradients back, of each of its chunks.
    result_.sent.stages = through * edge * std::min(2, layout_.stages) * chunks;
    heaviest_rank(pipeline);
  }

  // Neighbours that have parts of the same stages.
  int parts() const { return layout_.tensor * layout_.experts; }
  std::vector<double> ways(double edge) const {
    std::vector<double> seconds;
    for (int r = 0; r < layout_.stages; ++r) {
      const int here = r * parts(), there = (r + 1) % layout_.stages * parts();
      const bool same = here / figures_.ranks_per_host == there / figures_.ranks_per_host;
      seconds.push_back(Way(figures_, 2, same ? 1 : figures_.ranks_per_host).message(edge));
    }
    return seconds;
  }
  PipelineHosts hosts() const {
    PipelineHosts hosts;
    for (int r = 0; r < layout_.stages; ++r) {
      hosts.host_of.push_back(r * parts() / figures_.ranks_per_host);
    }
    const int in_one = layout_.stages * parts();
    hosts.copies = parts() >= figures_.ranks_per_host
                       ? figures_.ranks_per_host
                       : parts() * std::max(1, figures_.ranks_per_host / in_one);
    hosts.speedups = figures_.speedups;
    return hosts;
  }
  // Whose parameters take longest to reduce and update; the window is its own passes' time.
  void heaviest_rank(const parallel::Pipeline& pipeline) {
    double most = -1;
    const bool tied = model_.model().config.tie_embeddings;
    const std::size_t last = pipeline.num_stages() - 1;
    for (int r = 0; r < layout_.stages; ++r) {
      std::vector<double> held;
      double forward = 0, backward = 0;
      for (const std::size_t stage : pipeline.stages_of(r)) {
        held.push_back(model_.elements()[stage]);
        if (stage == last && tied && r != 0) held.back() += model_.elements()[0];
        forward += passes_.stages[stage].forward;
        backward += passes_.stages[stage].input + passes_.stages[stage].weight;
      }
      const double sum = std::accumulate(held.begin(), held.end(), 0.0);
      if (sum <= most) continue;
      most = sum;
      held_ = std::move(held);
      forward_ = forward;
      backward_ = backward;
    }
    if (tied && pipeline.rank_of(pipeline.num_chunks() - 1) != 0) {
      const Way ends(figures_, 2, (layout_.stages - 1) * parts());
      const double bytes = 4 * model_.elements()[0];
      result_.reduce_seconds += ends.reduce(bytes) + ends.gather(bytes);
    }
  }

  double held_elements() const { return std::accumulate(held_.begin(), held_.end(), 0.0); }
  double value_bytes() const {
    return static_cast<double>(Spec{options_.build.dtype, {1}}.bytes());
  }
  // Buckets that are reduced one after the other as backward completes them.
  double num_buckets() const {
    if (layout_.zero == 3) return static_cast<double>(held_.size());
    double buckets = 0, open = 0;
    for (auto stage = held_.rbegin(); stage != held_.rend(); ++stage) {
      open += 4 * *stage;
      if (open < static_cast<double>(options_.data_parallel.bucket_bytes)) continue;
      ++buckets;
      open = 0;
    }
    return open > 0 ? buckets + 1 : buckets;
  }
  /// What is left of collectives beside `window` seconds of passes; `alone` has no pass beside it.
  double exposed(double seconds, double alone, double window) const {
    return std::max(alone, seconds - figures_.overlap * window);
  }

  // What ranks with other experts all have, before data-parallel ranks sum it; no pass hides it.
  void sum_beside_experts() {
    if (layout_.experts == 1) return;
    const Way way(figures_, layout_.experts, layout_.tensor);
    const double bytes = 4 * model_.elements_beside_experts() / layout_.stages;
    result_.reduce_seconds += way.reduce(bytes) + way.gather(bytes);
    result_.sent.experts += 2 * way.sent(bytes);
  }

  // Gradients and parameters between data-parallel ranks.
  void share_parameters() {
    sum_beside_experts();
    const parallel::DataParallelOptions& shared = options_.data_parallel;
    if (layout_.sharing() == 1) return;
    const int stride = parts() * layout_.stages;
    const Way way(figures_, shared.num_ranks, stride);
    const double gradients = 4 * held_elements(), values = value_bytes() * held_elements();
    const double buckets = num_buckets();
    const double more = (buckets - 1) * way.latency();
    const double edge = held_.front() / std::max(1.0, held_elements());
    const double reductions = shared.exact ? rounds_ : 1;
    const double reduce = way.reduce(gradients) + more;
    const double gather = way.gather(values) + more;
    SentBytes& sent = result_.sent;
    sent.data += reductions * way.sent(gradients);
    double seconds = (reductions - 1) * exposed(reduce, edge * reduce, backward_);
    if (layout_.zero == 0) {
      const double both = reduce + way.gather(gradients) + more;
      seconds += exposed(both, edge * both, backward_);
      sent.data += way.sent(gradients);
    } else if (layout_.zero < 3) {
      seconds += exposed(reduce, edge * reduce, backward_);
      seconds += exposed(gather, edge * gather, forward_);
      sent.data += way.sent(values);
    } else {
      // Gathered for each forward and each backward pass, a stage ahead.
      seconds += exposed(reduce, edge * reduce, backward_);
      seconds +=
          rounds_ * (exposed(gather, edge * gather, forward_) + exposed(gather, 0, backward_));
      sent.data += 2 * rounds_ * way.sent(values);
    }
    if (shared.replicas > 1) {
      const Way across(figures_, shared.replicas, stride * shared.num_ranks);
      const double part = gradients / shared.num_ranks;
      const double both = across.reduce(part) + across.gather(part);
      seconds += exposed(both, edge * both, backward_);
      sent.data += 2 * across.sent(part);
    }
    result_.reduce_seconds += seconds;
  }

  void update() {
    double elements = held_elements();
    if (layout_.zero > 0) elements /= options_.data_parallel.num_ranks;
    const nn::ModelConfig& config = model_.model().config;
    const std::string& kind = options_.optimizer.kind;
    const std::vector<OpCase> ops = optimizer_op_cases(
        config, options_.build.dtype, static_cast<std::int64_t>(std::max(1.0, elements)));
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const OpCase& each) {
      return is_update_of(each, options_.optimizer);
    });
    double seconds = 0;
    if (op == ops.end()) {
      seconds = elements * bytes_of_update(optim::find_optimizer(kind)) / figures_.bytes_per_s;
    } else {
      seconds = seconds_of(figures_, *op);
      // Muon's works on one matrix.
      if (op->sizes[1] > 1) seconds *= elements / static_cast<double>(op->sizes[0] * op->sizes[1]);
    }
    // Gradients are set to zero, and read for their norm.
    result_.update_seconds = seconds + (4 * held_elements() + 4 * elements) / figures_.bytes_per_s;
  }

  // Of one element, by an optimizer that nobody has measured: it reads the gradient, and reads and
  // writes values and state.
  double bytes_of_update(const optim::OptimizerKind& kind) const {
    if (kind.whole_matrices) {
      throw user_error(
          "the planner has no figures of optim.kind = {}, whose updates take whole matrices; give "
          "plan/op_cases.cpp a benchmark of it",
          kind.name);
    }
    const bool has_masters =
        options_.build.dtype == Dtype::kBf16 && options_.optimizer.masters == optim::Masters::kF32;
    const auto states = static_cast<double>(kind.state_vectors.size()) + (has_masters ? 1 : 0);
    return 4 + 2 * static_cast<double>(dtype_size(options_.build.dtype)) + 8 * states;
  }

  const Figures& figures_;
  const Layout& layout_;
  const train::StateOptions& options_;
  const StageModel& model_;
  Passes passes_;
  std::int64_t micro_batches_;
  Estimate result_;
  // Of the rank that has most parameters.
  std::vector<double> held_;           // elements of each of its stages
  double forward_ = 0, backward_ = 0;  // its passes of one micro-batch
  double rounds_ = 1;
};

}  // namespace

Estimate estimate(const Figures& figures, const Layout& layout, const train::StateOptions& options,
                  const StageModel& model, std::int64_t micro_batches) {
  return Estimator(figures, layout, options, model, micro_batches).run();
}

double least_seconds(const Figures& figures, const Layout& layout, const StageModel& model,
                     std::int64_t micro_batches) {
  const Passes passes = passes_of(figures, layout, model);
  const double one = sum_forward(passes.stages) + sum_backward(passes.stages);
  const std::int64_t of_each = (micro_batches + layout.takers() - 1) / layout.takers();
  // Ranks of a pipeline that are alone on their host may be faster than all at once.
  const double fastest =
      layout.stages > 1 ? *std::max_element(figures.speedups.begin(), figures.speedups.end()) : 1;
  return static_cast<double>(of_each) * one / layout.stages / fastest;
}

}  // namespace atl::plan
