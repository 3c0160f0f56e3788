#include "atoll/plan/stage_seconds.h"

#include <map>
#include <set>

#include "atoll/nn/models/family.h"
#include "atoll/plan/measure.h"

namespace atl::plan {

namespace {

/// Counts what each stage shows that no stage before it has.
class Counter final : public nn::ParamVisitor {
 public:
  void param(nn::Param& param) override {
    if (param.frozen || !seen_.insert(&param).second) return;
    elements += static_cast<double>(param.spec.shape.num_elements());
  }
  double elements = 0;

 private:
  std::set<const nn::Param*> seen_;
};

/// Seconds of the ops of one block and of the head, by name.
class OpSeconds {
 public:
  OpSeconds(const Figures& figures, const std::vector<OpCase>& ops) {
    for (const OpCase& op : ops) seconds_[op.name] = seconds_of(figures, op);
  }
  /// 0 for an op that the family has not.
  double of(const std::string& name) const {
    const auto found = seconds_.find(name);
    return found == seconds_.end() ? 0 : found->second;
  }
  double of_products(const char* pass) const {
    double sum = 0;
    for (const char* product : {"qkv", "attention_out", "mlp_up", "mlp_down"}) {
      sum += of(std::string(product) + pass);
    }
    return sum;
  }
  double norm(const char* pass) const {
    return of(std::string("rms_norm") + pass) + of(std::string("layer_norm") + pass);
  }
  double activation(const char* pass) const {
    return of(std::string("swiglu") + pass) + of(std::string("gelu") + pass);
  }

 private:
  std::map<std::string, double> seconds_;
};

}  // namespace

StageModel::StageModel(const nn::ModelConfig& config, const nn::BuildOptions& build,
                       std::int64_t context)
    : model_(nn::build_model(config, build)), context_(context) {
  Counter counter;
  for (const auto& stage : model_->stages) {
    const double before = counter.elements;
    stage->visit(counter);
    elements_.push_back(counter.elements - before);
  }
}

bool StageModel::is_block(std::size_t stage) const {
  return model_->stage_names[stage].starts_with("block");
}

double StageModel::edge_bytes(std::int64_t micro_batch) const {
  const Spec spec = {model_->options.dtype, {micro_batch, context_, model_->config.hidden_size}};
  return static_cast<double>(spec.bytes());
}

std::vector<StageSeconds> StageModel::stages(const Figures& figures,
                                             std::int64_t micro_batch) const {
  const int tensor = model_->options.tensor_size;
  const OpSizes sizes = {
      .sequences = micro_batch, .context = context_, .dtype = model_->options.dtype};
  const OpSeconds ops(figures, training_op_cases(part_of(model_->config, tensor), sizes, tensor));
  // A sum of two tensors into a third, on the rows that this rank has; queries and keys are rotated
  // where they are.
  const double rows = edge_bytes(micro_batch) / tensor / figures.bytes_per_s;
  const double rotation = 2 * rows;
  StageSeconds block;
  block.forward = ops.of_products("/forward") + 2 * ops.norm("/forward") +
                  ops.of("attention/forward") + ops.activation("/forward") + rotation + 6 * rows;
  block.input = ops.of_products("/input_gradient") + 2 * ops.norm("/input_gradient") +
                ops.of("attention/backward") + ops.activation("/backward") + rotation + 6 * rows;
  block.weight = ops.of_products("/weight_gradient") + 4 * rows;
  if (model_->options.recompute == nn::RecomputeMode::kFull) block.input += block.forward;
  if (model_->options.recompute == nn::RecomputeMode::kSelective) {
    block.input += ops.of("mlp_up/forward") + ops.of("mlp_down/forward") +
                   ops.activation("/forward") + ops.norm("/forward");
  }
  const StageSeconds embedding = {2 * rows * tensor, 0, 3 * rows * tensor};
  const StageSeconds norm = {ops.norm("/forward"), ops.norm("/input_gradient"), 2 * rows};
  std::vector<StageSeconds> all;
  for (std::size_t i = 0; i < num_stages(); ++i) {
    StageSeconds at = norm;
    if (i == 0) at = embedding;
    if (is_block(i)) at = block;
    if (i + 1 == num_stages()) at = {ops.of("head/loss_and_gradients"), 0, 0};
    all.push_back({at.forward * figures.layer_factor, at.input * figures.layer_factor,
                   at.weight * figures.layer_factor});
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
