#include "atoll/nn/model.h"

#include <fmt/format.h>

#include <set>

namespace atl::nn {

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
  const auto weights = static_cast<double>(count.total - count.position);
  const auto length = static_cast<double>(sequence_length);
  double keys = 0;  // twice the mean number that a query sees, over all layers
  for (std::int64_t layer = 0; layer < model.config.num_layers; ++layer) {
    const auto window = static_cast<double>(model.config.window(layer));
    keys += window > 0 && window < length ? 2 * window - window * window / length : length;
  }
  return 6.0 * weights - 2.0 * static_cast<double>(count.frozen) +
         6.0 * keys * static_cast<double>(model.config.heads.query_width());
}

std::string flops_formula(const Model& model) {
  const bool frozen = count_parameters(model).frozen > 0;
  return fmt::format(
      "FLOPs/token = 6 N{} + 6 L T Q (N {}parameters without positions, L layers, T context, "
      "Q heads x head_dim; causal)",
      frozen ? " + 4 F" : "", frozen ? "trained and F frozen " : "");
}

}  // namespace atl::nn
