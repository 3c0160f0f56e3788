#pragma once

// Between parameters in memory and tensors in Hugging Face files: fused rows are taken apart and
// put together, Conv1D weights transposed, so that files keep the names and shapes others know.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/ckpt/hf_directory.h"
#include "atoll/ckpt/safetensors_writer.h"
#include "atoll/nn/param.h"

namespace atl::ckpt {

/// A parameter and a float tensor of its shape: its value, or a piece of optimizer state.
struct ParamTensor {
  const nn::Param* param = nullptr;
  Tensor tensor;
};

/// What to write for `params`: one source per file tensor, its name with `prefix` in front, in the
/// dtype that `dtypes` gives for the name without it, else in that of its tensor. The tensors must
/// stay as they are until written. What they hold beyond f16 is an Error(kUser) while writing.
std::vector<TensorSource> file_sources(std::span<const ParamTensor> params,
                                       std::string_view prefix = "", const FileDtypes& dtypes = {});

/// Fills `params` from one safetensors file that file_sources wrote. Throws Error(kUser) naming the
/// file and the tensor when one is missing or of another shape.
void read_params(const SafetensorsFile& file, std::span<const ParamTensor> params,
                 std::string_view prefix = "");

/// Fills `params` from a model directory of any origin, converting to their dtype, and returns the
/// source dtypes of what it read, by the parameters' file names. Besides what read_params takes, a
/// base model's names without their first part ("wte.weight" for "transformer.wte.weight"), buffers
/// that hold no parameter, and a repeated tied head pass.
FileDtypes read_params(const HfDirectory& directory, std::span<const ParamTensor> params);

/// Whether a tensor of this name is a buffer that older versions of transformers wrote among the
/// parameters: a mask or the frequencies of rotations.
bool is_buffer(std::string_view name);

}  // namespace atl::ckpt
