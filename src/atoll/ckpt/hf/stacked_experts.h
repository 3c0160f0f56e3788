#pragma once

// The experts of gpt-oss, which a Hugging Face file stacks in one tensor of three dims, each matrix
// (in, out), with gate and up in alternate columns. Here each expert's gate, up and down is a
// tensor (out, in) with a name of its own, as in files of other families with experts.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/ckpt/safetensors/float_rows.h"
#include "atoll/ckpt/safetensors/safetensors.h"
#include "atoll/ckpt/safetensors/writer.h"
#include "atoll/nn/param.h"

namespace atl::ckpt {

/// Where a stack has one expert's matrix or bias.
struct StackedExpert {
  std::string tensor;  ///< "model.layers.0.mlp.experts.gate_up_proj", "..._bias"
  std::int64_t expert = 0;
  std::int64_t part = 0;       ///< gate 0, up 1, of alternate columns; down 0
  std::int64_t num_parts = 1;  ///< gate_up 2, down 1
  bool is_bias = false;
};

/// Of "<...>.experts.<number>.gate_up_proj.gate.weight", "up" likewise,
/// "<...>.experts.<number>.down_proj.down.weight", and ".bias" of each; nothing for other names.
std::optional<StackedExpert> stacked_expert(std::string_view name);
/// The name of that form; `stack` is "<...>.experts.gate_up_proj".
std::string stacked_name(std::string_view stack, std::int64_t expert, std::int64_t part);

/// Fills `rows`, (out, in) or (out) of any float dtype, from the stack in a file. Throws
/// Error(kUser) naming the file and the tensor where it is missing or of another shape.
void read_stacked(const SafetensorsFile& file, const StackedExpert& where, const Tensor& rows);

/// The stack that a parameter of all experts is, whose value is `tensor`, written in `dtype`:
/// (experts, in, out), or (experts, out) of biases. Nothing where the parameter is no such. One
/// expert is put in order at a time.
std::optional<TensorSource> stacked_source(const nn::Param& param, const Tensor& tensor,
                                           Dtype dtype);

/// A stack in a Hugging Face file as GGUF has it: a tensor of each part, gate and up or down, with
/// the name that stacked_name() gives expert 0, of (experts, out, in), or (experts, out) of biases.
/// `tensor` is "<...>.experts.gate_up_proj" or "..._bias". Readers hold one expert's part. Nothing
/// where that is no stack. Throws as read_stacked.
std::vector<FloatRows> parts_of_stack(const SafetensorsFile& file, const std::string& tensor);

/// The reverse, whatever the order of `sources`: those of one expert's gate and up or down each,
/// with names as in a Param's files, become one stack, at the place of the first; others stay.
/// Throws Error(kInternal) where a stack lacks an expert.
std::vector<TensorSource> stack_experts(std::vector<TensorSource> sources);

}  // namespace atl::ckpt
