#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/nn/adapters/served_adapters.h"
#include "atoll/nn/model.h"

namespace atl::model_dir {

/// A LoRA adapter as products read it, for requests that ask for it beside others that do not.
/// Immutable once it is made.
class ServedAdapter {
 public:
  /// Reads an adapter of a model of that shape. Throws as AdapterMerge, and Error(kUser) naming
  /// what the adapter has besides pairs of factors for linear layers, which requests cannot have
  /// one by one: such an adapter is served alone, merged.
  ServedAdapter(const std::filesystem::path& directory, const nn::ModelConfig& config);
  ServedAdapter(const ServedAdapter&) = delete;
  ServedAdapter& operator=(const ServedAdapter&) = delete;

  /// The greatest rank of a Linear.
  std::int64_t max_rank() const { return max_rank_; }
  /// The factors of each Linear, as nn::linears_of() has them.
  const std::vector<nn::ServedFactors>& linears() const { return linears_; }
  std::size_t bytes() const;
  /// 8 hexadecimal digits, the same for adapters of the same numbers.
  std::string version() const;

 private:
  struct Block;
  void add(const nn::Param& weight, const std::vector<Block>& blocks);
  Tensor keep(std::vector<float> values, const Shape& shape);

  std::vector<nn::ServedFactors> linears_;
  std::vector<std::vector<float>> memory_;  // of the factors
  std::int64_t max_rank_ = 0;
};

}  // namespace atl::model_dir
