#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "atoll/model_dir/model_path.h"
#include "atoll/serve/batch/generator.h"
#include "atoll/serve/rounded_store.h"

namespace atl::cli {

/// What a generator is made for. 0: what it thinks best.
struct GeneratorNeeds {
  model_dir::ModelPath path;
  std::int64_t max_context = 0;  ///< tokens of a prompt and its answer; 0: the model's positions
  std::int64_t slots = 0;        ///< sequences that run at once
  std::int64_t step_tokens = 0;  ///< rows of a step, of prompts and answers together
  serve::Weights weights = serve::Weights::kF32;
  std::int64_t max_queue = 0;         ///< sequences that may wait
  std::int64_t max_queue_tokens = 0;  ///< tokens of their prompts
  std::size_t cache_bytes = 0;        ///< of keys and values
  int threads = 0;                    ///< that compute
};

/// A generator of the model, ready to serve. Throws Error(kUser) for needs that the model or the
/// machine cannot meet.
std::unique_ptr<serve::Generator> open_generator(const GeneratorNeeds& needs);

}  // namespace atl::cli
