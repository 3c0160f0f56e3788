#include "atoll/model_dir/served_adapter.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/model_dir/adapter_merge.h"
#include "atoll/nn/adapters/linears.h"
#include "atoll/nn/models/family.h"

namespace atl::model_dir {

namespace fs = std::filesystem;

namespace {

void refuse_alone(const fs::path& directory, const std::string& what) {
  throw user_error(
      "{}: {}, which requests cannot have one by one; serve this adapter alone (`atoll serve {}`)",
      directory.string(), what, directory.string());
}

void check_shape(const fs::path& directory, const nn::ModelConfig& config) {
  const nn::ModelConfig adapted = adapted_config(config, directory);
  if (adapted.vocab_size != config.vocab_size) {
    refuse_alone(directory, "the adapter has another number of tokens");
  }
  if (adapted.tie_embeddings != config.tie_embeddings) {
    refuse_alone(directory, "the adapter gives the head weights of its own");
  }
}

}  // namespace

// What one tensor of the base model's files gets.
struct ServedAdapter::Block {
  std::int64_t row_begin = 0;  // in the Linear's weight
  TensorFactors factors;
};

ServedAdapter::ServedAdapter(const fs::path& directory, const nn::ModelConfig& config) {
  check_shape(directory, config);
  const std::unique_ptr<nn::Model> model = nn::build_model(config, {.max_positions = 1});
  const AdapterMerge adapter(directory, *model);
  if (const auto others = adapter.other_parts(); !others.empty()) {
    refuse_alone(directory, "it has " + others.front());
  }
  std::map<std::string, TensorFactors> by_tensor;
  for (TensorFactors& factors : adapter.factors()) {
    const std::string tensor = factors.tensor;
    by_tensor.emplace(tensor, std::move(factors));
  }
  for (const nn::Linear* linear : nn::linears_of(*model)) {
    std::vector<Block> blocks;
    for (const nn::FileTensor& file : linear->weight().files) {
      const auto at = by_tensor.find(file.name);
      if (at == by_tensor.end()) continue;
      blocks.push_back({file.row_begin, std::move(at->second)});
      by_tensor.erase(at);
    }
    add(linear->weight(), blocks);
  }
  if (!by_tensor.empty()) {
    refuse_alone(directory, "it adapts " + by_tensor.begin()->first);
  }
}

// A has the rows of all blocks one below the other, B their columns beside each other.
void ServedAdapter::add(const nn::Param& weight, const std::vector<Block>& blocks) {
  std::int64_t rank = 0;
  for (const Block& block : blocks) rank += block.factors.rank;
  max_rank_ = std::max(max_rank_, rank);
  nn::ServedFactors made;
  if (rank > 0) {
    const std::int64_t out = weight.spec.shape.dim(0);
    const std::int64_t in = weight.spec.shape.dim(1);
    std::vector<float> a, b(static_cast<std::size_t>(out * rank), 0.0F);
    std::int64_t column = 0;
    for (const Block& block : blocks) {
      const TensorFactors& factors = block.factors;
      a.insert(a.end(), factors.right.begin(), factors.right.end());
      for (std::size_t i = 0; i < factors.left.size(); ++i) {
        const std::int64_t row = block.row_begin + static_cast<std::int64_t>(i) / factors.rank;
        const std::int64_t at = row * rank + column + static_cast<std::int64_t>(i) % factors.rank;
        b[static_cast<std::size_t>(at)] =
            static_cast<float>(factors.scale * static_cast<double>(factors.left[i]));
      }
      column += factors.rank;
    }
    made = {keep(std::move(a), {rank, in}), keep(std::move(b), {out, rank})};
  }
  linears_.push_back(made);
}

Tensor ServedAdapter::keep(std::vector<float> values, const Shape& shape) {
  ATOLL_CHECK(std::ssize(values) == shape.num_elements(), "{} of {}", values.size(),
              shape.num_elements());
  memory_.push_back(std::move(values));
  return {memory_.back().data(), {Dtype::kF32, shape}};
}

std::size_t ServedAdapter::bytes() const {
  std::size_t bytes = 0;
  for (const std::vector<float>& one : memory_) bytes += one.size() * sizeof(float);
  return bytes;
}

std::string ServedAdapter::version() const {
  constexpr std::size_t kDigits = 8;
  Hasher hasher;
  for (const std::vector<float>& one : memory_) {
    hasher.update(one.data(), one.size() * sizeof(float));
  }
  return to_hex(hasher.digest()).substr(0, kDigits);
}

}  // namespace atl::model_dir
