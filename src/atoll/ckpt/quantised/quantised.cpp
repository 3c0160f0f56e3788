#include "atoll/ckpt/quantised/quantised.h"

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/ckpt/quantised/methods.h"

namespace atl::ckpt {

namespace {

using Json = nlohmann::json;

std::string method_of(const Json& config, const std::string& origin) {
  if (config.contains("quant_method") && config.at("quant_method").is_string()) {
    return config.at("quant_method").get<std::string>();
  }
  for (const char* key : {"load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit"}) {
    if (config.contains(key)) return "bitsandbytes";
  }
  throw user_error("{}: \"quantization_config\" does not say a \"quant_method\"", origin);
}

StoredMatrices read_method(const std::string& method, const QuantisedSource& source) {
  if (method == "bitsandbytes") return read_bitsandbytes(source);
  if (method == "gptq") return read_gptq(source);
  if (method == "awq") return read_awq(source);
  if (method == "gguf") return read_gguf_blocks(source);
  if (method == "mxfp4") return read_mxfp4(source);
  if (method == "fp8") return read_fp8_blocks(source);
  throw user_error(
      "{}: the weights are quantised by \"{}\", which atoll does not read; it reads bitsandbytes "
      "(NF4, FP4, int8), GPTQ, AWQ, MXFP4, FP8 in blocks and the types of GGUF",
      source.origin, method);
}

}  // namespace

QuantisedWeights::QuantisedWeights(const HfDirectory& directory) {
  const std::string origin = (directory.path() / "config.json").string();
  if (directory.config_json().find("\"quantization_config\"") == std::string::npos) return;
  const Json json = parse_json(directory.config_json(), origin);
  if (!json.is_object() || !json.contains("quantization_config")) return;
  const Json& config = json.at("quantization_config");
  if (config.is_null()) return;
  if (!config.is_object()) {
    throw user_error("{}: \"quantization_config\" is {}, not an object", origin, config.dump());
  }
  method_ = method_of(config, origin);
  weights_ = read_method(method_, {directory, config, origin});
  if (weights_.empty()) {
    throw user_error(
        "{} says that the weights are quantised ({}), and none of them is: take "
        "\"quantization_config\" out of it",
        origin, method_);
  }
  const std::string_view kind = weights_.begin()->second.format->name();
  if (method_ == "bitsandbytes" || method_ == "gguf") method_ += " " + std::string(kind);
}

const StoredMatrix* QuantisedWeights::find(std::string_view name) const {
  const auto at = weights_.find(name);
  return at == weights_.end() ? nullptr : &at->second;
}

FileDtypes widened_dtypes(const HfDirectory& directory) {
  FileDtypes dtypes = directory.source_dtypes();
  const QuantisedWeights quantised(directory);
  for (const auto& [name, weight] : quantised.all()) {
    for (const std::string& part : weight.tensors) dtypes.erase(part);
    dtypes[name] = weight.dtype;
  }
  return dtypes;
}

}  // namespace atl::ckpt
