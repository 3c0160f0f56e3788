#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "atoll/model_dir/model_path.h"
#include "atoll/serve/batch/batch_generator.h"
#include "atoll/serve/rounded_store.h"

namespace atl::cli {

/// What a generator is made for; where a number is 0 it is as said here.
struct GeneratorNeeds {
  model_dir::ModelPath path;
  std::int64_t max_context = 0;  ///< tokens of one request; the model's positions
  std::int64_t slots = 0;        ///< requests that run together; 8
  std::int64_t step_tokens = 0;  ///< tokens of one step; 128
  serve::Weights weights = serve::Weights::kF32;
  std::int64_t max_queue = 0;         ///< requests that wait; 128
  std::int64_t max_queue_tokens = 0;  ///< tokens of their prompts; a million
  std::size_t cache_bytes = 0;  ///< of keys and values: all slots' contexts, or a quarter of memory
  int threads = 0;              ///< as many as there are CPUs
};

/// A generator with the weights of a model directory. Throws Error(kUser) for a model directory
/// that is none, and MemoryError where the model and the cache do not fit. `version`: see
/// serve::Generator.
std::unique_ptr<serve::BatchGenerator> open_generator(const GeneratorNeeds& needs,
                                                      const std::string& version = {});

/// Has a generator that open_generator() has made serve the weights of needs.path from now on.
/// False: the model before it still waits to be used. Throws as open_generator, and Error(kUser)
/// for a model of another shape.
bool replace_model(const GeneratorNeeds& needs, const std::string& version,
                   serve::BatchGenerator& generator);

}  // namespace atl::cli
