#include "atoll/model_dir/new_rows.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/json.h"
#include "atoll/model_dir/adapter_arithmetic.h"

namespace atl::model_dir {

namespace {

// With another value of a field of config.json.
template <typename Value>
void change_source(nn::ModelConfig& config, const char* field, const Value& value) {
  if (config.source_json.empty()) return;
  nlohmann::ordered_json json = parse_ordered_json(config.source_json, "config.json");
  json[field] = value;
  config.source_json = json.dump(2) + "\n";
}

}  // namespace

nn::ModelConfig with_vocab_size(nn::ModelConfig config, std::int64_t vocab_size) {
  if (config.vocab_size == vocab_size) return config;
  config.vocab_size = vocab_size;
  change_source(config, "vocab_size", vocab_size);
  return config;
}

nn::ModelConfig with_own_head(nn::ModelConfig config) {
  config.tie_embeddings = false;
  change_source(config, "tie_word_embeddings", false);
  return config;
}

void fill_new_rows(const Tensor& table, std::int64_t old_rows) {
  ATOLL_CHECK(old_rows > 0 && old_rows <= table.dim(0), "{} of {}", old_rows,
              table.spec().to_string());
  const std::vector<float> mean = mean_of_rows(table.rows(0, old_rows));
  std::vector<std::int64_t> indices;
  std::vector<float> rows;
  for (std::int64_t row = old_rows; row < table.dim(0); ++row) {
    indices.push_back(row);
    rows.insert(rows.end(), mean.begin(), mean.end());
  }
  replace_rows(indices, rows, table);
}

}  // namespace atl::model_dir
