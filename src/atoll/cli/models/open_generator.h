#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/model_dir/model_path.h"
#include "atoll/serve/batch/batch_generator.h"
#include "atoll/serve/rounded_store.h"

namespace atl::cli {

/// The machines that have a model's layers; all of it empty or 0: this process has them.
struct StagesNeeds {
  std::vector<std::string> stages;  ///< HOST:PORT, in the order of the layers
  std::vector<std::string> spares;
  std::string layers;       ///< of each: "0-11,12-23"; empty: shares of equal bytes
  std::string identity;     ///< a directory for wire::load_identity(); empty: none
  std::int64_t groups = 0;  ///< see serve::stages::PipelineOptions
};

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
  StagesNeeds stages = {};
  /// Ranks of this process that share each product, with their part of the threads; not with stages
  /// or adapters.
  int tensor_ranks = 1;
  /// Room for adapters, which come by put_adapter(); 0: there are none. Not with stages.
  std::int64_t max_adapters = 0;
  std::int64_t adapter_rank = 0;     ///< see serve::StepModel
  std::string weights_name = "f32";  ///< of `weights`, as a command line says it: for stages
};

/// The layers of a model directory, with their weights, or of `ranks` this one's part. Throws as
/// open_generator. `threads`: 0: as many as there are CPUs.
std::unique_ptr<serve::StepModel> open_step_model(const model_dir::ModelPath& path,
                                                  serve::Weights weights, int threads,
                                                  const serve::StepRoom& room,
                                                  const serve::StepLayers& layers = {},
                                                  std::int64_t adapter_rank = 0,
                                                  serve::ModelRanks* ranks = nullptr);

/// A generator with the weights of a model directory. Throws Error(kUser) for a model directory
/// that is none, and MemoryError where the model and the cache do not fit. With stages it returns
/// when all of them have their layers, and throws Error(kUser) where one refuses them. `version`:
/// see serve::Generator.
std::unique_ptr<serve::BatchGenerator> open_generator(const GeneratorNeeds& needs,
                                                      const std::string& version = {});

/// A generator for questions whose tokens take `positions` at most: `at_once` requests run
/// together, in memory for as many as there is room for. Throws as open_generator.
std::unique_ptr<serve::BatchGenerator> open_task_generator(const model_dir::ModelPath& path,
                                                           serve::Weights weights, int threads,
                                                           std::int64_t positions,
                                                           std::int64_t at_once);

/// Has a generator that open_generator() has made serve the weights of needs.path from now on.
/// False: the model before it still waits to be used. Throws as open_generator, and Error(kUser)
/// for a model of another shape.
bool replace_model(const GeneratorNeeds& needs, const std::string& version,
                   serve::BatchGenerator& generator);

}  // namespace atl::cli
