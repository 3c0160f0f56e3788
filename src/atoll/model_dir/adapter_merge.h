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

/// The factors that an adapter has for one tensor of its base model's files: it adds s L R.
struct TensorFactors {
  std::string tensor;  ///< "model.layers.0.self_attn.q_proj.weight"
  std::int64_t rank = 0;
  double scale = 0;          ///< s
  std::vector<float> left;   ///< L: (rows, rank); of an embedding a row for each token
  std::vector<float> right;  ///< R: (rank, in)
};

/// A trained adapter that becomes a part of the weights of its base model: W + s B A, and whatever
/// else it has.
class AdapterMerge {
 public:
  /// `model`: of adapted_config; it must outlive this, and no value of it is read. Throws
  /// Error(kUser) or Error(kDamaged) naming file and tensor.
  AdapterMerge(const std::filesystem::path& directory, nn::Model& model);

  /// The adapter's file.
  const ckpt::SafetensorsFile& file() const { return tensors_.file(); }
  /// Whether the adapter has all of a parameter, so that the base model's values do not matter.
  bool replaces(const nn::Param& param) const;
  /// Changes the value of a parameter, whole, in f32 or bf16, as the adapter says. Throws
  /// Error(kUser) naming file and tensor for one of another shape.
  void add_to(const nn::Param& param, const Tensor& value) const;
  /// All pairs of factors, in the order in which the model has its tensors; experts each have their
  /// own. Throws Error(kUser) naming file and tensor for one of another shape.
  std::vector<TensorFactors> factors() const;
  /// What the adapter has besides pairs of factors: the field "use_dora", and names of tensors.
  std::vector<std::string> other_parts() const;

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
    std::vector<std::int64_t> order;  // the rows in the file, where that has them in another order
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
  std::string embedding_;                 // the module of the token embedding
  std::vector<const nn::Param*> params_;  // each once, as they are visited
  std::map<const nn::Param*, Changes> changes_;
};

}  // namespace atl::model_dir
