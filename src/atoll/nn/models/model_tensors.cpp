#include "atoll/nn/models/model_tensors.h"

#include <map>
#include <set>

#include "atoll/nn/linear.h"

namespace atl::nn {

namespace {

class Tensors final : public ParamVisitor {
 public:
  explicit Tensors(Model& model) { model.visit(*this); }

  void linear(Linear& linear) override { linears_.insert(&linear.weight()); }
  void param(Param& param) override {
    if (!seen_.insert(&param).second) return;
    for (const FileTensor& file : param.files) {
      const bool is_bias = file.name.ends_with(".bias");
      const std::string module = module_of(file);
      if (!is_bias) kinds_[module] = kind_of(param);
      // A bias is visited after the weight of its module.
      all.push_back({&param, file, module, kinds_[module], is_bias});
    }
  }

  std::vector<ModelTensor> all;

 private:
  ModuleKind kind_of(const Param& param) const {
    if (param.is_router) return ModuleKind::kRouter;
    if (linears_.contains(&param)) return ModuleKind::kLinear;
    if (param.name.find(".mlp.experts.") != std::string::npos) return ModuleKind::kExpert;
    if (!param.is_embedding) return ModuleKind::kOther;
    // A head that shares the embedding's table has no name of its own.
    return is_head_weight(param.files.front().name) ? ModuleKind::kHead : ModuleKind::kEmbedding;
  }

  std::map<std::string, ModuleKind> kinds_;
  std::set<const Param*> seen_;
  std::set<const Param*> linears_;
};

}  // namespace

bool is_head_weight(std::string_view name) {
  constexpr std::string_view kWeight = ".weight";
  if (!name.ends_with(kWeight)) return false;
  name.remove_suffix(kWeight.size());
  return name == kHeadModule || name == kNeoxHeadModule;
}

std::string module_of(const FileTensor& file) {
  return file.name.substr(0, file.name.rfind('.'));
}

std::vector<ModelTensor> model_tensors(Model& model) {
  return Tensors(model).all;
}

}  // namespace atl::nn
