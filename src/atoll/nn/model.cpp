#include "atoll/nn/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace atl::nn {

BuildOptions with_context_attention(const ModelConfig& config, BuildOptions options) {
  if (options.context_attention != ContextAttention::kAuto) return options;
  // Of a rank; where tensor-parallel ranks are more than key-value heads, each has one.
  const std::int64_t heads = config.heads.num_heads / options.tensor_size;
  const std::int64_t kv_heads =
      std::max<std::int64_t>(1, config.heads.num_kv_heads / options.tensor_size);
  const bool shares_heads =
      heads % options.context_size == 0 && kv_heads % options.context_size == 0;
  options.context_attention = shares_heads ? ContextAttention::kUlysses : ContextAttention::kRing;
  return options;
}

void Model::visit(ParamVisitor& visitor) const {
  for (const auto& constant : constants) visitor.constant(*constant);
  for (const auto& stage : stages) stage->visit(visitor);
}

namespace {

class Counter final : public ParamVisitor {
 public:
  void param(Param& param) override {
    if (!seen_.insert(&param).second) return;
    const std::int64_t elements = whole_param(param).spec.shape.num_elements();
    count.total += elements;
    if (param.is_position) count.position += elements;
    if (param.frozen) count.frozen += elements;
    const std::int64_t idle =
        std::llround(static_cast<double>(elements) * (1 - whole_param(param).share_of_tokens));
    count.idle += idle;
    if (param.frozen) count.idle_frozen += idle;
  }
  ParameterCount count;

 private:
  std::set<const Param*> seen_;
};

}  // namespace

ParameterCount count_parameters(const Model& model) {
  Counter counter;
  counter.count = model.elsewhere_count;
  model.visit(counter);
  return counter.count;
}

double flops_per_token(const Model& model, std::int64_t sequence_length) {
  const ParameterCount count = count_parameters(model);
  const auto weights = static_cast<double>(count.total - count.position - count.idle);
  const auto frozen = static_cast<double>(count.frozen - count.idle_frozen);
  const auto length = static_cast<double>(sequence_length);
  double keys = 0;  // twice the mean number that a query sees, over all layers
  for (std::int64_t layer = 0; layer < model.config.num_layers; ++layer) {
    const auto window = static_cast<double>(model.config.window(layer));
    keys += window > 0 && window < length ? 2 * window - window * window / length : length;
  }
  return 6.0 * weights - 2.0 * frozen +
         6.0 * keys * static_cast<double>(model.config.heads.query_width());
}

std::string flops_formula(const Model& model) {
  const ParameterCount count = count_parameters(model);
  const bool frozen = count.frozen > 0;
  return fmt::format(
      "FLOPs/token = 6 N{} + 6 L T Q (N {}parameters without positions{}, L layers, T context, "
      "Q heads x head_dim; causal)",
      frozen ? " + 4 F" : "", frozen ? "trained and F frozen " : "",
      count.idle > 0 ? " that a token goes through" : "");
}

}  // namespace atl::nn
