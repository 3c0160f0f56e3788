#include "atoll/nn/adapters/lora_experts.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/nn/adapters/first_factor.h"
#include "atoll/nn/mixture_of_experts.h"

namespace atl::nn {

namespace {

constexpr const char* kSetting = "lora.target_parameters";

// The blocks' experts, in their order.
std::vector<MixtureOfExperts*> experts_of(const Model& model) {
  struct Finder final : ExpertVisitor {
    void param(Param& /*param*/) override {}
    void experts(MixtureOfExperts& experts) override { all.push_back(&experts); }
    std::vector<MixtureOfExperts*> all;
  } finder;
  model.visit(finder);
  return finder.all;
}

// What files of transformers call the module of a block's experts.
std::string module_of_stack(const Param& weight) {
  constexpr const char* kExperts = ".mlp.experts";
  return weight.name.substr(0, weight.name.rfind(kExperts)) + kExperts;
}

struct Adapted {
  LoraShape shape;
  std::string module;  ///< as PEFT calls what it wraps
};

ExpertAdapter adapter_of(const Model& model, const MixtureOfExperts& experts, const Param& weight,
                         const Adapted& adapted) {
  const std::int64_t count = experts.num_experts();
  const Shape& shape = whole_param(weight).spec.shape;
  const std::int64_t rows = count * adapted.shape.rank, in = shape.dim(1);
  const std::int64_t out = shape.dim(0) / count;
  Param a;
  Param b;
  a.name = weight.name + " lora_A";
  b.name = weight.name + " lora_B";
  a.spec = {weight.spec.dtype, {rows, in}};
  b.spec = {weight.spec.dtype, {rows, out}};
  a.files = {{kPeftPrefix + adapted.module + ".lora_A.weight", 0, rows, false}};
  b.files = {{kPeftPrefix + adapted.module + ".lora_B.weight", 0, rows, /*transposed=*/true}};
  a.init = first_of_a(in);
  b.init = Init::zero();
  for (Param* param : {&a, &b}) {
    param->decay = true;
    param->share_of_tokens = weight.share_of_tokens;
    // All ranks that share products have both; each has the gradient of its part.
    if (model.tensor->size > 1) param->shared_by = {{model.tensor.get(), 0}};
  }
  ExpertAdapter::Columns columns = {{}, rows_in_stack(weight, count)};
  const std::int64_t first =
      weight.cut ? weight.cut->slices[static_cast<std::size_t>(weight.cut->rank)].column_begin : 0;
  for (std::int64_t i = 0; i < weight.spec.shape.dim(1); ++i) columns.in.push_back(first + i);
  return {std::move(a), std::move(b), count, adapted.shape.scale, std::move(columns)};
}

void refuse_others(const Model& model, const LoraOptions& options) {
  const auto refuse = [](const char* what, const char* remedy) {
    throw user_error("{} does not go with {}; {}", kSetting, what, remedy);
  };
  if (options.dropout > 0) refuse("lora.dropout", "leave one of the two out");
  if (options.use_dora) refuse("lora.dora", "leave one of the two out");
  if (model.options.device != DeviceKind::kCpu) refuse("a GPU", "use --device=cpu");
  if (model.expert->size > 1) refuse("parallel.ep", "use data-parallel ranks");
}

}  // namespace

void adapt_experts(Model& model, const LoraOptions& options, const LoraRules& rules) {
  if (options.target_parameters.empty()) return;
  refuse_others(model, options);
  std::set<std::string> there;
  for (MixtureOfExperts* experts : experts_of(model)) {
    const std::string module = module_of_stack(experts->gate_up());
    const std::string names[] = {module + ".gate_up_proj", module + ".down_proj"};
    there.insert(std::begin(names), std::end(names));
    const auto gate_up = rules.of_parameter(names[0]), down = rules.of_parameter(names[1]);
    // PEFT wraps a module whose parameters are both adapted twice, the first parameter inside.
    const std::string inner = module + (down ? ".base_layer" : "");
    if (gate_up) {
      experts->adapt_gate_up(adapter_of(model, *experts, experts->gate_up(), {*gate_up, inner}));
    }
    if (down) experts->adapt_down(adapter_of(model, *experts, experts->down(), {*down, module}));
  }
  for (const std::string& name : options.target_parameters) {
    const bool is_there =
        std::any_of(there.begin(), there.end(),
                    [&](const std::string& parameter) { return is_called(parameter, name); });
    if (is_there) continue;
    throw user_error("{}: {} is no stack of experts of this model{}", kSetting, name,
                     there.empty()
                         ? ", which has no experts"
                         : "; there are mlp.experts.gate_up_proj and "
                           "mlp.experts.down_proj, and lora.targets adapts other modules");
  }
}

}  // namespace atl::nn
