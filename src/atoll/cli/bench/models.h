#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "atoll/nn/model.h"

namespace atl::cli {

/// A model that benchmarks make with random weights, so that nothing need be downloaded.
struct BenchModel {
  const char* name;    ///< "gpt2-124m"
  const char* config;  ///< its config.json
};

/// The name that benchmarks begin with.
inline constexpr const char* kBenchModel = "gpt2-124m";

/// All of them, largest first.
const std::vector<BenchModel>& bench_models();
/// Their names as a line: "gpt2-124m, llama-30m, demo".
std::string bench_model_names();
/// Whether there is one of this name.
bool is_bench_model(std::string_view name);
/// The shape of that one. Throws Error(kUser) listing them for another name.
nn::ModelConfig bench_model_config(std::string_view name);

}  // namespace atl::cli
