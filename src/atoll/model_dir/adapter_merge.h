#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "atoll/model_dir/adapter_arithmetic.h"
#include "atoll/model_dir/adapter_config.h"
#include "atoll/model_dir/adapter_tensors.h"
#include "atoll/nn/models/model_tensors.h"

namespace atl::model_dir {

/// The model that an adapter makes of its base. PEFT keeps a tied embedding and head apart where
/// the adapter changes one of them without ensure_weight_tying, and an adapter with an embedding of
/// its own decides how many tokens there are. Throws as parse_adapter_config and AdapterTensors.
nn::ModelConfig adapted_config(nn::ModelConfig base, const std::filesystem::path& directory);

/// A trained adapter that becomes a part of the weights of its base model: W + s B A, and whatever
/// else it has.
class AdapterMerge {
 public:
  /// `model`: of adapted_config; it must outlive this, and no value of it is read. Throws
  /// Error(kUser) or Error(kDamaged) naming file and tensor.
  AdapterMerge(const std::filesystem::path& directory, nn::Model& model);

  /// Whether the adapter has all of a parameter, so that the base model's values do not matter.
  bool replaces(const nn::Param& param) const;
  /// Changes the value of a parameter, whole, in f32 or bf16, as the adapter says. Throws
  /// Error(kUser) naming file and tensor for one of another shape.
  void add_to(const nn::Param& param, const Tensor& value) const;

 private:
  // W[rows] + s L R.
  struct LowRank {
    nn::FileTensor rows;
    nn::LoraShape shape;
    bool is_embedding = false;
    std::string a_name, b_name, lengths_name;  // in the file; lengths of DoRA may be absent
    // Of a parameter that stacks experts: which, of how many.
    std::int64_t expert = 0;
    std::int64_t num_experts = 1;
  };
  // The factors of all experts of a parameter, read once for all of them.
  struct StackedFactors {
    std::string a_name;
    std::vector<float> a, b;
  };
  struct Bias {
    nn::FileTensor rows;
    double scale = 0;
    std::string name;
  };
  struct TokenRows {
    std::string name;
    std::vector<std::int64_t> indices;
  };
  struct Changes {
    std::vector<nn::FileTensor> replaced;  // with names of the adapter's file
    std::vector<TokenRows> tokens;
    std::vector<LowRank> low_rank;
    std::vector<Bias> biases;
  };

  void plan(const nn::ModelTensor& tensor, const nn::LoraRules& rules);
  void plan_low_rank(const nn::ModelTensor& tensor, const nn::LoraShape& shape);
  void plan_tokens(const nn::ModelTensor& tensor);
  void plan_stacked_experts(nn::Param& param, const nn::LoraRules& rules);
  void check_tied_head();
  LowRankChange read(const LowRank& low_rank, std::int64_t in, StackedFactors& stacked) const;

  AdapterConfig config_;
  AdapterTensors tensors_;
  std::string embedding_;  // the module of the token embedding
  std::map<const nn::Param*, Changes> changes_;
};

}  // namespace atl::model_dir
