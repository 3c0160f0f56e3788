#pragma once

// Weights of 4 or 8 bits in a Hugging Face directory: which tensors of its files make up one
// weight, and how to read it, in its bits or widened.

#include <map>
#include <string>
#include <string_view>

#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/quantised/stored_matrix.h"

namespace atl::ckpt {

/// The quantised weights of a directory.
class QuantisedWeights {
 public:
  /// None where config.json has no quantization_config. Throws Error(kUser) naming file and value
  /// for a method or a variant that atoll does not read, or where no weight is quantised;
  /// Error(kDamaged) naming the tensor where parts of a weight are missing or do not fit together.
  /// `directory` must outlive this.
  explicit QuantisedWeights(const HfDirectory& directory);

  bool empty() const { return weights_.empty(); }
  /// The weight of this name ("model.layers.0.mlp.up_proj.weight"), or null where it is none of
  /// these.
  const StoredMatrix* find(std::string_view name) const;
  const std::map<std::string, StoredMatrix, std::less<>>& all() const { return weights_; }
  /// "bitsandbytes nf4", "gptq": for people; empty where no weight is quantised.
  const std::string& method() const { return method_; }

 private:
  std::string method_;
  std::map<std::string, StoredMatrix, std::less<>> weights_;
};

/// HfDirectory::source_dtypes, where a quantised weight is of the dtype that its numbers are
/// rounded to, and what it is made of is none. Throws as QuantisedWeights.
FileDtypes widened_dtypes(const HfDirectory& directory);

}  // namespace atl::ckpt
