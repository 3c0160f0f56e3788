#pragma once

// Between parameters in memory and tensors in Hugging Face files: fused rows are taken apart and
// put together, Conv1D weights transposed, gpt-oss's experts stacked, so that files keep the names
// and shapes others know.

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/quantised/quantised.h"
#include "atoll/ckpt/safetensors/set.h"
#include "atoll/ckpt/safetensors/writer.h"
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
/// The same for one parameter, whose tensors may lie in different files.
void read_param(const SafetensorsSet& files, const ParamTensor& param,
                std::string_view prefix = "");

/// Finds the parameters of a model in a directory of any origin. Besides the names that
/// file_sources gives, a base model's names without their first part ("wte.weight" for
/// "transformer.wte.weight"), buffers that hold no parameter, and a repeated tied head pass.
class DirectoryParams {
 public:
  /// `params` are all that the model has, the embedding first; no value is read. Throws
  /// Error(kUser) naming a tensor that is missing, or that no parameter is called. Both must
  /// outlive this.
  DirectoryParams(const HfDirectory& directory, std::span<const nn::Param* const> params);

  /// Fills the memory of one of them, converting to its dtype; of a quantised weight, with the
  /// numbers that its bits mean. Throws Error(kUser) naming the file and the tensor for one of
  /// another shape, or of no floats.
  void read(const ParamTensor& param) const;
  /// Fills the bytes of a parameter that is packed (nn::Param::packed), each part in the format of
  /// its tensor in this directory. Throws as read().
  void read_packed(const nn::Param& param) const;
  /// The source dtypes of their tensors, by the parameters' file names.
  const FileDtypes& dtypes() const { return dtypes_; }

 private:
  std::string name_of(const nn::FileTensor& part) const;
  /// The tensor of the files that has what is called `name`: it, or a stack of experts.
  std::string holder_of(const std::string& name) const;
  bool contains(const std::string& name) const;
  void use(const nn::FileTensor& part, const FileDtypes& source);
  void refuse_others(const std::string& embedding) const;

  const HfDirectory& directory_;
  QuantisedWeights quantised_;
  std::set<std::string> used_;
  FileDtypes dtypes_;
};

/// Fills `params`, which are all that a model has, from a directory, and returns the source dtypes
/// of what it read; see DirectoryParams.
FileDtypes read_params(const HfDirectory& directory, std::span<const ParamTensor> params);

/// Whether a tensor of this name is a buffer that older versions of transformers wrote among the
/// parameters: a mask or the frequencies of rotations.
bool is_buffer(std::string_view name);

}  // namespace atl::ckpt
