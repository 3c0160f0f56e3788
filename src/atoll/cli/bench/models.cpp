#include "atoll/cli/bench/models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/nn/models/family.h"

namespace atl::cli {

const std::vector<BenchModel>& bench_models() {
  static const std::vector<BenchModel> models = {
      {"gpt2-124m", R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12,
                        "n_head": 12, "n_positions": 1024})"},
      {"llama-30m", R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 384,
                        "num_hidden_layers": 10, "num_attention_heads": 6,
                        "num_key_value_heads": 6, "intermediate_size": 1024,
                        "max_position_embeddings": 1024, "tie_word_embeddings": true})"},
      {"demo", R"({"model_type": "llama", "vocab_size": 2048, "hidden_size": 256,
                   "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4,
                   "intermediate_size": 704, "max_position_embeddings": 1024,
                   "tie_word_embeddings": true})"},
  };
  return models;
}

std::string bench_model_names() {
  std::vector<std::string_view> names;
  for (const BenchModel& model : bench_models()) names.emplace_back(model.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool is_bench_model(std::string_view name) {
  return std::any_of(bench_models().begin(), bench_models().end(),
                     [&](const BenchModel& model) { return model.name == name; });
}

nn::ModelConfig bench_model_config(std::string_view name) {
  for (const BenchModel& model : bench_models()) {
    if (model.name == name) return nn::parse_config(model.config, model.name);
  }
  throw user_error("--model: there is no model \"{}\" to measure with; give one of {}", name,
                   bench_model_names());
}

}  // namespace atl::cli
