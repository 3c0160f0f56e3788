// Granite 3 and 4 dense (IBM 2024): Llama with multipliers of embeddings, branches, scores and
// logits, as muP gives them.

#include <nlohmann/json.hpp>

#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/rotary_decoder.h"

namespace atl::nn {

namespace {

// A number that something is multiplied with or divided by.
double read_multiplier(ConfigReader& reader, const char* field, double fallback) {
  const double value = reader.number(field, fallback);
  if (!(value > 0)) throw reader.refused(field, "not above 0");
  return value;
}

ModelConfig parse(std::string_view json, const std::string& origin) {
  ConfigReader reader(json, origin);
  ModelConfig config = read_decoder(reader, origin, "granite", {.max_positions = 2048});
  config.attention_bias = reader.boolean("attention_bias", false);
  config.mlp_bias = reader.boolean("mlp_bias", false);
  config.embedding_scale = read_multiplier(reader, "embedding_multiplier", 1);
  config.residual_scale = read_multiplier(reader, "residual_multiplier", 1);
  config.attention_scale = read_multiplier(reader, "attention_multiplier", 1);
  config.logits_scale = 1 / read_multiplier(reader, "logits_scaling", 1);
  reader.finish();
  return config;
}

std::string to_json(const ModelConfig& config) {
  const nlohmann::json own = {{"attention_bias", config.attention_bias},
                              {"mlp_bias", config.mlp_bias},
                              {"embedding_multiplier", config.embedding_scale},
                              {"residual_multiplier", config.residual_scale},
                              {"attention_multiplier", config.score_scale()},
                              {"logits_scaling", 1 / config.logits_scale}};
  return decoder_json(config, "GraniteForCausalLM", own.dump());
}

void write_gguf(const ModelConfig& config, const std::string& /*origin*/, GgufSettings& to) {
  to["embedding_scale"] = config.embedding_scale;
  to["residual_scale"] = config.residual_scale;
  to["attention.scale"] = config.score_scale();
  to["logit_scale"] = 1 / config.logits_scale;
}

void read_gguf(GgufSettings& from, ModelConfig& config) {
  config.embedding_scale = take_gguf_number(from, "embedding_scale", 1);
  config.residual_scale = take_gguf_number(from, "residual_scale", 1);
  config.attention_scale = take_gguf_number(from, "attention.scale", 0);
  config.logits_scale = 1 / take_gguf_number(from, "logit_scale", 1);
}

}  // namespace

Family granite_family() {
  return {.model_type = "granite",
          .parse = parse,
          .to_json = to_json,
          .build = build_decoder,
          .gguf = {.architecture = "granite",
                   .outside = decoder_gguf_outside(),
                   .inside = llama_gguf_inside(),
                   .write = write_gguf,
                   .read = read_gguf}};
}

}  // namespace atl::nn
