#pragma once

// What tests of whole layouts share: a layout of ranks over tensor, pipeline and data-parallel
// axes, one step in double on each rank, and what came of it as whole parameters.

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "atoll/comm/mesh.h"
#include "atoll/nn/models/adapted.h"
#include "atoll/nn/models/family.h"
#include "atoll/ops/testing.h"
#include "atoll/parallel/layout/context_share.h"
#include "atoll/parallel/layout/micro_batches.h"
#include "atoll/parallel/runner/pipeline_part.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/store/store_data_parallel.h"
#include "atoll/parallel/store/store_single.h"

namespace atl::parallel::layout_test {

/// How ranks share a model and a step.
struct Layout {
  int tensor = 1, pipeline = 1, shard = 1, replicas = 1, context = 1;
  nn::ContextAttention attention = nn::ContextAttention::kAuto;
  int expert = 1;  ///< ranks that share the experts, which have micro-batches of their own
  Zero zero = Zero::kNone;
  std::string schedule = "1f1b";
  int chunks = 0;
  std::int64_t bucket_bytes = 1 << 10;

  /// Ranks that have micro-batches of their own.
  int data() const { return shard * replicas * expert; }
  int ranks() const { return tensor * pipeline * context * data(); }
  std::string name() const {
    return fmt::format("tp {} pp {} ({}, {} chunks) cp {} {} ep {} dp {}x{} ZeRO {}", tensor,
                       pipeline, schedule, chunks, context,
                       attention == nn::ContextAttention::kRing ? "ring" : "", expert, replicas,
                       shard, static_cast<int>(zero));
  }
};

/// The model, the data and how the model is built.
struct Task {
  nn::ModelConfig model;
  nn::BuildOptions build;
  std::int64_t batch = 2, length = 8, micro_batches = 4;
  bool documents = false;  ///< several in a sequence, which do not see each other
  std::optional<nn::LoraOptions> lora = {};
  bool lora_starts = false;  ///< adapters as they begin: B is zero, and so is A's gradient
};

/// What a step gives: losses of all micro-batches, and whole values and gradients by parameter.
struct Outcome {
  double loss = 0, evaluated = 0, grad_norm = 0;
  /// By place of the ranks that have tokens of their own, in whose order they are added up.
  std::map<std::pair<int, int>, double> losses, evaluations;
  std::map<std::string, std::vector<double>> values, gradients;
};

/// The micro-batches of a step.
class StepData {
 public:
  explicit StepData(const Task& task) {
    for (std::int64_t i = 0; i < task.micro_batches; ++i) {
      const auto seed = 3 * static_cast<std::uint64_t>(i);
      const Shape shape = {task.batch, task.length};
      tokens_.push_back(test::random_tokens(shape, task.model.vocab_size, seed));
      targets_.push_back(test::random_tokens(shape, task.model.vocab_size, seed + 1));
      targets_.back()[i % task.length] = kIgnoreTarget;
      positions_.emplace_back(shape);
      const RngStream stream(seed + 2, RngPurpose::kSynthetic);
      for (std::int64_t at = 0; at < positions_.back().size(); ++at) {
        const bool begins =
            at % task.length == 0 || stream.word(static_cast<std::uint64_t>(at)) % 4 == 0;
        positions_.back()[at] = begins ? 0 : positions_.back()[at - 1] + 1;
      }
    }
    for (std::int64_t i = 0; i < task.micro_batches; ++i) {
      const auto at = static_cast<std::size_t>(i);
      Batch batch = {tokens_[at], targets_[at], i * task.batch};
      if (task.documents) batch.positions = positions_[at];
      all_.push_back(batch);
    }
  }
  const Batch& operator[](std::int64_t i) const { return all_[static_cast<std::size_t>(i)]; }

 private:
  std::vector<test::OwnedTensor<std::int32_t>> tokens_, targets_, positions_;
  std::vector<Batch> all_;
};

/// One rank's model and memory in a layout; `world` is null for one rank alone.
class LayoutRank {
 public:
  LayoutRank(const Task& task, const Layout& layout, comm::World* world)
      : task_(task), layout_(layout), run_(1, 1 << 12) {
    if (world != nullptr) join(*world);
    nn::BuildOptions build = task.build;
    build.dtype = Dtype::kF64;
    build.tensor_size = layout.tensor;
    build.tensor_rank = tensor_rank_;
    build.context_size = layout.context;
    build.context_rank = context_rank_;
    build.context_attention = layout.attention;
    build.expert_size = layout.expert;
    build.expert_rank = expert_rank_;
    model_ = task.lora ? nn::build_adapted_model(task.model, build, *task.lora)
                       : nn::build_model(task.model, build);
    const std::int64_t rounds = task.micro_batches / layout.data();
    if (layout.pipeline > 1) {
      part_ = std::make_unique<PipelinePart>(
          *model_,
          PipelineOptions{layout.pipeline, pipeline_rank_, layout.schedule, layout.chunks, rounds},
          task.length);
    }
    const DataParallelOptions shared = {.zero = layout.zero,
                                        .num_ranks = layout.shard * layout.context,
                                        .rank = shard_rank_,
                                        .replicas = layout.replicas,
                                        .rounds = part_ ? 1 : rounds,
                                        .bucket_bytes = layout.bucket_bytes};
    if (shared.is_plain()) {
      store_ = std::make_unique<SingleStore>(*model_, true);
    } else {
      store_ = std::make_unique<DataParallelStore>(*model_, true, shared);
    }
    if (part_) part_->attach(*store_);
    const std::int64_t length = task.length / layout.context;
    runner_ = part_ ? std::make_unique<Runner>(*model_, *store_, Use::kTrain, task.batch, length,
                                               part_->schedule())
                    : std::make_unique<Runner>(*model_, *store_, Use::kTrain, task.batch, length);
    allocate();
    if (world != nullptr) connect(*world);
  }

  /// The losses and the gradient of a step; every rank must call it.
  void train(const StepData& data, Outcome& outcome, std::mutex& mutex) {
    store_->initialise(run_, 5);
    if (task_.lora && !task_.lora_starts) fill_adapters();
    run_.run.seed = 9;
    run_.run.loss_scale =
        1.0 / static_cast<double>(task_.micro_batches * task_.batch * task_.length);
    std::vector<Batch> mine;
    for (const std::int64_t number :
         MicroBatchPlan(task_.micro_batches, layout_.data()).of(data_rank_)) {
      mine.push_back(data[number]);
      if (layout_.context == 1) continue;
      shares_.push_back(std::make_unique<ContextShare>(
          *run_.device, model_->options.sequence_part(), task_.batch, task_.length));
      mine.back() = shares_.back()->of(mine.back());
    }
    // Twice, with an evaluation between: nothing is left of the first.
    double loss = 0, evaluated = 0;
    for (int repeat = 0; repeat < 2; ++repeat) {
      loss = evaluated = 0;
      const auto rounds = part_ ? 1 : std::ssize(mine);
      for (std::int64_t round = 0; round < rounds; ++round) {
        store_->begin_round({.index = round, .last = round + 1 == rounds});
        const std::span<const Batch> batches(mine);
        loss += runner_->train(
            run_, part_ ? batches : batches.subspan(static_cast<std::size_t>(round), 1));
      }
      store_->reduce(run_);
      for (const Batch& batch : mine) evaluated += runner_->evaluate(run_, batch);
    }
    const double norm = part_ ? part_->grad_norm(run_, *store_) : store_->grad_norm(run_);
    store_->settle();
    const std::lock_guard lock(mutex);
    if (tensor_rank_ == 0) {
      outcome.losses[{data_rank_, context_rank_}] += loss;
      outcome.evaluations[{data_rank_, context_rank_}] += evaluated;
    }
    EXPECT_TRUE(outcome.grad_norm == 0 || outcome.grad_norm == norm) << "ranks differ";
    outcome.grad_norm = norm;
    collect(outcome);
  }

  const ParamStore& store() const { return *store_; }

 private:
  void join(comm::World& world) {
    mesh_ = std::make_unique<comm::Mesh>(
        world,
        std::vector<comm::Axis>{{"replicate", layout_.replicas, "dp"},
                                {"shard", layout_.shard * layout_.context, "dp"},
                                {.name = "pp", .size = layout_.pipeline, .point_to_point = true},
                                {"ep", layout_.expert},
                                {"tp", layout_.tensor}});
    tensor_rank_ = mesh_->coordinate("tp");
    pipeline_rank_ = mesh_->coordinate("pp");
    shard_rank_ = mesh_->coordinate("shard");
    context_rank_ = shard_rank_ % layout_.context;
    expert_rank_ = mesh_->coordinate("ep");
    const int sharing =
        mesh_->coordinate("replicate") * layout_.shard + shard_rank_ / layout_.context;
    data_rank_ = sharing * layout_.expert + expert_rank_;
  }

  void connect(comm::World& world) {
    store_->connect(mesh_->group("shard"),
                    layout_.replicas > 1 ? &mesh_->group("replicate") : nullptr);
    if (layout_.tensor > 1) {
      comm::Group& tensor = mesh_->group("tp");
      model_->tensor->group = &tensor;
      nn::Axis& kv = *model_->kv_copies;
      std::vector<int> members;
      for (int r = 0; r < kv.size; ++r) members.push_back(world.rank() - kv.rank + r);
      kv_copies_ = world.group(members, "kv", world.channel("tp", tensor.members()));
      kv.group = kv_copies_.get();
    }
    if (layout_.expert > 1) model_->expert->group = &mesh_->group("ep");
    model_->parts->group = &mesh_->group(layout_.tensor > 1 ? "tp" : "ep");
    if (layout_.tensor > 1 && layout_.expert > 1) {
      const int parts = layout_.tensor * layout_.expert;
      std::vector<int> members;
      for (int r = 0; r < parts; ++r) members.push_back(world.rank() / parts * parts + r);
      parts_ = world.group(members, "parts", world.channel("parts", members));
      model_->parts->group = parts_.get();
    }
    if (layout_.context > 1) {
      const int of_one_model = layout_.tensor * layout_.expert * layout_.pipeline;
      std::vector<int> members;
      for (int r = 0; r < layout_.context; ++r) {
        members.push_back(world.rank() + (r - context_rank_) * of_one_model);
      }
      context_ = world.group(members, "cp", world.channel("cp", members));
      model_->context->group = context_.get();
    }
    if (!part_) return;
    comm::Group& pipeline = mesh_->group("pp");
    const std::vector<int>& members = pipeline.members();
    if (part_->is_tied() && (world.rank() == members.front() || world.rank() == members.back())) {
      ends_ = world.group({members.front(), members.back()}, "ends", world.channel("pp", members));
    }
    part_->connect(pipeline, ends_.get());
    runner_->connect(pipeline);
  }

  void allocate() {
    store_->request(plan_, runner_->schedule());
    runner_->request(plan_);
    plan_.place();
    arena_ = std::make_unique<Arena>(*run_.device, plan_);
    store_->bind(*arena_);
    runner_->bind(*arena_);
  }

  // What an adapter starts with has no gradient for A. By name: layouts number them as they like.
  void fill_adapters() {
    store_->fill([](const nn::Param& param, const Tensor& whole) {
      const RngStream stream(std::hash<std::string>()(nn::whole_param(param).name),
                             RngPurpose::kSynthetic);
      auto* values = whole.data<double>();
      for (std::int64_t i = 0; i < whole.num_elements(); ++i) {
        values[i] = stream.word(static_cast<std::uint64_t>(i)) * 0x1p-32 - 0.5;
      }
    });
  }

  // Adds what this rank's optimizer would update to the whole parameters.
  void collect(Outcome& outcome) const {
    for (const optim::ParamRange& range : store_->ranges()) {
      std::size_t i = 0;
      while (i + 1 < store_->trained().size() && store_->offset(i + 1) <= range.begin) ++i;
      const nn::Param& param = *store_->trained()[i];
      const std::int64_t first = range.begin - store_->offset(i);
      const std::int64_t count = std::min(range.count, param.spec.shape.num_elements() - first);
      const auto* values = store_->values().data<double>() + range.in_values();
      const auto* gradients = store_->grads().data<double>() + range.in_grads();
      put(param, first, count, values, outcome.values[param.name]);
      put(param, first, count, gradients, outcome.gradients[param.name]);
    }
  }

  // Elements [first, first + count) of this rank's part of a parameter.
  static void put(const nn::Param& param, std::int64_t first, std::int64_t count,
                  const double* from, std::vector<double>& whole) {
    const Shape& shape = nn::whole_param(param).spec.shape;
    whole.resize(static_cast<std::size_t>(shape.num_elements()));
    if (!param.cut) {
      std::copy(from, from + count, whole.begin() + first);
      return;
    }
    // Where the part's elements lie in the whole: the numbers of these, cut as they are.
    std::vector<double> numbers(whole.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
    std::vector<double> places(static_cast<std::size_t>(param.spec.shape.num_elements()));
    nn::copy_slice(param.cut->slices[static_cast<std::size_t>(param.cut->rank)],
                   {numbers.data(), {Dtype::kF64, shape}},
                   {places.data(), {Dtype::kF64, param.spec.shape}});
    for (std::int64_t i = 0; i < count; ++i) {
      whole[static_cast<std::size_t>(places[static_cast<std::size_t>(first + i)])] = from[i];
    }
  }

  const Task& task_;
  const Layout& layout_;
  test::TestRun run_;
  int tensor_rank_ = 0, pipeline_rank_ = 0, data_rank_ = 0, shard_rank_ = 0, context_rank_ = 0;
  int expert_rank_ = 0;
  std::unique_ptr<comm::Mesh> mesh_;
  std::unique_ptr<comm::Group> kv_copies_, ends_, context_, parts_;
  std::vector<std::unique_ptr<ContextShare>> shares_;
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<PipelinePart> part_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Runner> runner_;
  MemoryPlan plan_;
  std::unique_ptr<Arena> arena_;
};

/// A step of all ranks of a layout, each a thread; a layout of one rank runs here.
inline Outcome train(const Task& task, const Layout& layout,
                     const comm::WorldOptions& options = {.timeout_s = 60}) {
  const StepData data(task);
  Outcome outcome;
  std::mutex mutex;
  if (layout.ranks() == 1) {
    LayoutRank(task, layout, nullptr).train(data, outcome, mutex);
  } else {
    comm::run_threads(layout.ranks(), options, [&](comm::World& world) {
      LayoutRank(task, layout, &world).train(data, outcome, mutex);
    });
  }
  for (const auto& [place, loss] : outcome.losses) outcome.loss += loss;
  for (const auto& [place, loss] : outcome.evaluations) outcome.evaluated += loss;
  return outcome;
}

}  // namespace atl::parallel::layout_test
