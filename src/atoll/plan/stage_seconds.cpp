#include "atoll/plan/stage_seconds.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/nn/models/family.h"

namespace atl::plan {

namespace {

/// Counts what each stage shows that no stage before it has.
class Counter final : public nn::ParamVisitor {
 public:
  explicit Counter(const nn::Axis* expert) : expert_(expert) {}
  void param(nn::Param& param) override {
    if (param.frozen || !seen_.insert(&param).second) return;
    const auto size = static_cast<double>(param.spec.shape.num_elements());
    elements += size;
    for (const nn::Sharing& sharing : param.shared_by) {
      if (sharing.axis == expert_) beside_experts += size;
    }
  }
  double elements = 0;
  double beside_experts = 0;  // of these, that all ranks which share experts have

 private:
  const nn::Axis* expert_;
  std::set<const nn::Param*> seen_;
};

/// Seconds of the ops of one block and of the head, by name.
class OpSeconds {
 public:
  OpSeconds(const Figures& figures, const std::vector<OpCase>& ops) {
    for (const OpCase& op : ops) seconds_[op.name] = seconds_of(figures, op);
  }
  bool has(const std::string& name) const { return seconds_.contains(name); }
  double of(const std::string& name) const {
    const auto found = seconds_.find(name);
    ATOLL_CHECK(found != seconds_.end(), "the planner has no figures of {}", name);
    return found->second;
  }
  double of_attention_products(const char* pass) const {
    return of(std::string("qkv") + pass) + of(std::string("attention_out") + pass);
  }
  double of_mlp_products(const char* pass) const {
    return of(std::string("mlp_up") + pass) + of(std::string("mlp_down") + pass);
  }
  /// Of all experts and their router.
  double of_expert_products(const char* pass, std::int64_t num_experts) const {
    const double one = of(std::string("expert_up") + pass) + of(std::string("expert_down") + pass);
    return static_cast<double>(num_experts) * one + of(std::string("router") + pass);
  }

 private:
  std::map<std::string, double> seconds_;
};

std::int64_t part(std::int64_t size, int ranks) {
  return std::max<std::int64_t>(1, (size + ranks - 1) / ranks);
}

}  // namespace

nn::ModelConfig part_of(const nn::ModelConfig& model, int tensor) {
  nn::ModelConfig mine = model;
  mine.heads.num_heads = part(model.heads.num_heads, tensor);
  mine.heads.num_kv_heads = part(model.heads.num_kv_heads, tensor);
  mine.intermediate_size = part(model.intermediate_size, tensor);
  if (model.experts.num_experts > 0) {
    mine.experts.intermediate_size = part(model.experts.intermediate_size, tensor);
  }
  mine.vocab_size = part(model.vocab_size, tensor);
  return mine;
}

StageModel::StageModel(const nn::ModelConfig& config, const nn::BuildOptions& build,
                       std::int64_t context)
    : model_(nn::build_model(config, build)), context_(context) {
  Counter counter(model_->expert.get());
  for (const auto& stage : model_->stages) {
    const double before = counter.elements;
    stage->visit(counter);
    elements_.push_back(counter.elements - before);
  }
  elements_beside_experts_ = counter.beside_experts;
}

bool StageModel::is_block(std::size_t stage) const {
  return model_->stage_names[stage].starts_with("block");
}

bool StageModel::has_experts(std::size_t stage) const {
  const std::int64_t layer = static_cast<std::int64_t>(stage) - 1;
  return is_block(stage) && model_->config.experts.has_experts(layer);
}

double StageModel::edge_bytes(std::int64_t micro_batch) const {
  const Spec spec = {
      model_->options.dtype,
      {micro_batch, context_ / model_->options.context_size, model_->config.hidden_size}};
  return static_cast<double>(spec.bytes());
}

std::vector<StageSeconds> StageModel::stages(const Figures& figures,
                                             std::int64_t micro_batch) const {
  const nn::BuildOptions& build = model_->options;
  const int tensor = build.tensor_size;
  const nn::ModelConfig part = part_of(model_->config, tensor);
  const OpSizes sizes = {.sequences = micro_batch,
                         .context = context_ / build.context_size,
                         .dtype = build.dtype,
                         .expert_ranks = build.expert_size};
  const OpSeconds ops(figures, training_op_cases(part, sizes, tensor));
  // Each rank of a context group does its part of what all queries and keys of a sequence take.
  OpSizes whole = sizes;
  whole.context = context_;
  const OpSeconds attention(figures, attention_op_cases(part, whole));
  // A sum of two tensors into a third, on the rows that this rank has; queries and keys are rotated
  // where they are.
  const double rows = edge_bytes(micro_batch) / tensor / figures.bytes_per_s;
  const double rotation = 2 * rows;
  const nn::Family& family = nn::find_family(part.family, "a plan");
  const std::string norm_name(family.norm), activation(family.activation);
  const double norm_forward = ops.of(norm_name + "/forward");
  const double norm_input = ops.of(norm_name + "/input_gradient");
  StageSeconds half;  // a block without its MLP
  half.forward = ops.of_attention_products("/forward") + family.block_norms * norm_forward +
                 attention.of("attention/forward") / build.context_size + rotation + 6 * rows;
  half.input = ops.of_attention_products("/input_gradient") + family.block_norms * norm_input +
               attention.of("attention/backward") / build.context_size + rotation + 6 * rows;
  half.weight = ops.of_attention_products("/weight_gradient") + 4 * rows;
  std::optional<StageSeconds> mlp, expert_mlp;
  if (ops.has("mlp_up/forward")) {
    mlp = {ops.of_mlp_products("/forward") + ops.of(activation + "/forward"),
           ops.of_mlp_products("/input_gradient") + ops.of(activation + "/backward"),
           ops.of_mlp_products("/weight_gradient")};
  }
  // Rows of tokens become rows of choices, and these become rows of tokens, each a read and a
  // write.
  const auto& experts = model_->config.experts;
  if (experts.num_experts > 0) {
    const double choices = 4 * rows * static_cast<double>(experts.top_k);
    const std::int64_t own = experts.num_experts / build.expert_size;
    expert_mlp = {
        ops.of_expert_products("/forward", own) + ops.of("expert_swiglu/forward") + choices,
        ops.of_expert_products("/input_gradient", own) + ops.of("expert_swiglu/backward") + choices,
        ops.of_expert_products("/weight_gradient", own)};
  }
  const StageSeconds embedding = {2 * rows * tensor, 0, 3 * rows * tensor};
  const StageSeconds norm = {norm_forward, norm_input, 2 * rows};
  std::vector<StageSeconds> all;
  for (std::size_t i = 0; i < num_stages(); ++i) {
    StageSeconds at = norm;
    if (i == 0) at = embedding;
    if (is_block(i)) {
      const std::optional<StageSeconds>& own = has_experts(i) ? expert_mlp : mlp;
      ATOLL_CHECK(own, "the planner has no figures of the MLP of block {}", i);
      const StageSeconds& other = *own;
      at = {half.forward + other.forward, half.input + other.input, half.weight + other.weight};
      if (build.recompute == nn::RecomputeMode::kFull) at.input += at.forward;
      if (build.recompute == nn::RecomputeMode::kSelective) {
        at.input += other.forward + norm_forward;
      }
    }
    if (i + 1 == num_stages()) at = {ops.of("head/loss_and_gradients"), 0, 0};
    all.push_back({at.forward * figures.layer_factor, at.input * figures.layer_factor,
                   at.weight * figures.layer_factor});
  }
  return all;
}

std::vector<ContextBytes> StageModel::context_bytes(std::int64_t micro_batch) const {
  const nn::BuildOptions& build = model_->options;
  std::vector<ContextBytes> all(num_stages());
  if (build.context_size == 1) return all;
  const ops::HeadLayout heads = part_of(model_->config, build.tensor_size).heads;
  const double column = edge_bytes(micro_batch) / static_cast<double>(model_->config.hidden_size);
  const auto others = static_cast<double>(build.context_size - 1);
  ContextBytes block;
  if (build.context_attention == nn::ContextAttention::kRing) {
    const double kv = others * column * static_cast<double>(2 * heads.kv_width());
    const auto wider = static_cast<double>(dtype_size(compute_dtype(build.dtype))) /
                       static_cast<double>(dtype_size(build.dtype));
    block = {kv, kv + wider * kv};  // gradients are in the compute dtype
  } else {
    const double rows = others / build.context_size * column *
                        static_cast<double>(heads.qkv_width() + heads.query_width());
    block = {rows, rows};
  }
  if (build.recompute == nn::RecomputeMode::kFull) block.input += block.forward;
  for (std::size_t i = 0; i < num_stages(); ++i) {
    if (is_block(i)) all[i] = block;
  }
  return all;
}

std::vector<ExpertBytes> StageModel::expert_bytes(std::int64_t micro_batch) const {
  const nn::BuildOptions& build = model_->options;
  std::vector<ExpertBytes> all(num_stages());
  if (build.expert_size == 1) return all;
  const double share = static_cast<double>(build.expert_size - 1) / build.expert_size;
  // Rows of choices there and back.
  const double both =
      2 * share * edge_bytes(micro_batch) * static_cast<double>(model_->config.experts.top_k);
  const bool again = build.recompute != nn::RecomputeMode::kNone;
  for (std::size_t i = 0; i < num_stages(); ++i) {
    if (has_experts(i)) all[i] = {both, again ? 2 * both : both, both};
  }
  return all;
}

std::vector<RowTransfers> StageModel::transfers() const {
  std::vector<RowTransfers> all(num_stages());
  if (model_->options.tensor_size == 1) return all;
  // docs/tensor-parallel.md; what is computed again is sent again.
  for (std::size_t i = 0; i < num_stages(); ++i) {
    RowTransfers& at = all[i];
    if (i == 0) {
      at = {.forward_sums = 1, .weight_gathers = 1};
    } else if (i + 1 == num_stages()) {
      at = {.forward_gathers = 1, .forward_sums = 1};
    } else if (is_block(i)) {
      at = {2, 2, 2, 2, 2};
      if (model_->options.recompute == nn::RecomputeMode::kFull) {
        at.input_gathers += 2;
        at.input_sums += 2;
      }
    }
  }
  return all;
}

}  // namespace atl::plan
