#pragma once

// Pieces that families share: named parameters and the frame around the blocks.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/nn/linear.h"
#include "atoll/nn/model.h"

namespace atl::nn {

class ConfigReader;

/// One Hugging Face tensor that a fused Linear takes some of its output rows from.
struct LinearPart {
  std::string name;  ///< without ".weight" / ".bias": "model.layers.0.self_attn.q_proj"
  std::int64_t out = 0;
};

/// What a Linear is made of; a bias with an empty name is none.
struct LinearParams {
  Param weight, bias;
};

/// The parameters of a Linear of `in` inputs whose output rows are the parts', one after the other.
/// `transposed`: the files hold (in, out), as GPT-2's Conv1D does.
LinearParams make_linear_params(Dtype dtype, const std::vector<LinearPart>& parts, std::int64_t in,
                                double stddev, bool bias, bool transposed = false);
/// The Linear of these.
Linear make_linear(Dtype dtype, const std::vector<LinearPart>& parts, std::int64_t in,
                   double stddev, bool bias, bool transposed = false);

/// A Param that is one Hugging Face tensor of the same shape.
Param make_param(std::string name, Spec spec, Init init, bool decay);

/// The dropout of that number, on the rows that this rank has between branches: its part of them,
/// and of those of its own tokens.
std::unique_ptr<Layer> make_dropout(const BuildOptions& options, int index);

/// x + branch(norm(x)), or x + branch(x) where `norm` is null, with dropout on the branch and
/// recompute of it when the options ask for them. `index` is 2 i + 1 for the attention of block i
/// and 2 i + 2 for its MLP; it numbers the dropouts.
std::unique_ptr<Layer> make_residual(std::unique_ptr<Layer> norm, std::unique_ptr<Layer> branch,
                                     const BuildOptions& options, int index);
/// The same without "x +": what a ParallelResidual adds to x.
std::unique_ptr<Layer> make_branch(std::unique_ptr<Layer> norm, std::unique_ptr<Layer> branch,
                                   const BuildOptions& options, int index);

/// The first stage of a model and the last.
struct TensorEnds {
  std::unique_ptr<Layer> embedding, head;
  LinearCrossEntropy* plain_head = nullptr;  ///< null where the head is a VocabularyCrossEntropy
};

/// Throws Error(kUser) naming `origin` and the field when sizes do not fit together: zero, heads
/// that do not divide, more parameters than any machine holds.
void validate(const ModelConfig& config, const std::string& origin);

/// Reads bos and eos into `config`, whose vocab_size is there, and looks that these and the others
/// are ids of tokens; one that the vocabulary lacks is none.
void read_token_ids(ConfigReader& reader, ModelConfig& config);

/// Throws Error(kUser) where the weights are quantised by a method that ckpt/quantised does not
/// read.
void check_quantised(ConfigReader& reader);

}  // namespace atl::nn
