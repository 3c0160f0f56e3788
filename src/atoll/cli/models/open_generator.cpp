#include "atoll/cli/models/open_generator.h"

#include <algorithm>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/processes/machine.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/models/weights.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/model_identity.h"
#include "atoll/model_dir/model_room.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/serve/batch/batch_generator.h"
#include "atoll/serve/batch/ranks_executor.h"
#include "atoll/serve/stages/layer_split.h"
#include "atoll/serve/stages/pipeline_executor.h"

namespace atl::cli {

namespace {

constexpr std::int64_t kSlots = 8;
constexpr std::int64_t kStepTokens = 128;
constexpr std::int64_t kTaskStepTokens = 256;
constexpr std::int64_t kMaxQueue = 128;
constexpr std::int64_t kMaxQueueTokens = 1'000'000;

std::int64_t or_default(std::int64_t given, std::int64_t otherwise) {
  return given == 0 ? otherwise : given;
}

// Tokens that the tokenizer has; the model may have more.
std::int64_t checked_vocabulary(const model_dir::ModelPath& path, const nn::ModelConfig& config) {
  const std::int64_t size = model_dir::load_tokenizer(path).vocab_size();
  if (size <= config.vocab_size) return size;
  throw user_error("the tokenizer has {} tokens and the model {}; they do not belong together",
                   size, config.vocab_size);
}

// As a quarter of the memory that is free has room for.
std::int64_t blocks_in_memory(const nn::ModelConfig& config) {
  const std::uint64_t available = read_machine().memory_available;
  if (available == 0) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(available / 4 / serve::StepModel::block_bytes(config));
}

// How many blocks of keys and values, and so how many positions, there are.
serve::StepRoom room_for(const GeneratorNeeds& needs, const nn::ModelConfig& config) {
  constexpr std::int64_t kBlock = serve::StepModel::kBlockSize;
  const std::int64_t context = or_default(needs.max_context, config.max_positions);
  if (context > config.max_positions) {
    throw user_error("--context={}: the model has {}; choose at most as many", context,
                     counted(config.max_positions, "position"));
  }
  const std::size_t block_bytes = serve::StepModel::block_bytes(config);
  const std::int64_t of_context = serve::StepModel::blocks_for(context);
  std::int64_t blocks = of_context * or_default(needs.slots, kSlots);
  if (needs.cache_bytes > 0) {
    blocks = static_cast<std::int64_t>(needs.cache_bytes / block_bytes);
  } else if (needs.stages.stages.empty()) {
    blocks = std::min(blocks, blocks_in_memory(config));
  }
  if (blocks < 1) {
    throw user_error("--cache: {} tokens take {}, and there is less; give more, or free memory",
                     kBlock, format_bytes(block_bytes));
  }
  if (blocks * kBlock < context) {
    log::warning("the cache holds {} tokens, and so does a request: fewer than --context={}",
                 format_count(blocks * kBlock), context);
  }
  return {.max_positions = context,
          .max_rows =
              std::max(or_default(needs.step_tokens, kStepTokens), or_default(needs.slots, kSlots)),
          .num_blocks = blocks};
}

// The weights of these layers, as a share of the model's.
double share_of(const nn::ModelConfig& config, const serve::StepLayers& layers) {
  if (layers.count(config) == config.num_layers) return 1;
  const serve::stages::LayerBytes bytes = serve::stages::layer_bytes(config);
  return serve::stages::stage_bytes(bytes, layers) /
         serve::stages::stage_bytes(bytes, {0, config.num_layers});
}

std::unique_ptr<serve::StepExecutor> open_pipeline(const GeneratorNeeds& needs,
                                                   const nn::ModelConfig& config,
                                                   const serve::StepRoom& room,
                                                   std::int64_t vocab_size) {
  namespace stages = serve::stages;
  const StagesNeeds& machines = needs.stages;
  const std::size_t count = machines.stages.size();
  stages::PipelineOptions options = {
      .stages = machines.stages,
      .spares = machines.spares,
      .layers = machines.layers.empty() ? stages::split_evenly(config, count)
                                        : stages::parse_layers(machines.layers, config, count),
      .config = config,
      .model = model_dir::model_identity(needs.path),
      .weights = needs.weights_name,
      .room = room,
      .vocab_size = vocab_size,
      .groups = machines.groups};
  if (!machines.identity.empty()) options.identity = machines.identity;
  for (std::size_t i = 0; i < count; ++i) {
    log::info("stage {} has layers {} to {}", machines.stages[i], options.layers[i].first,
              options.layers[i].end - 1);
  }
  auto executor = std::make_unique<stages::PipelineExecutor>(std::move(options));
  executor->wait_until_ready();
  return executor;
}

std::unique_ptr<serve::StepExecutor> open_ranks(const GeneratorNeeds& needs,
                                                const serve::StepRoom& room,
                                                std::int64_t vocab_size) {
  if (model_dir::holds_adapter(needs.path)) {
    throw user_error(
        "--tp={}: {} is an adapter, and ranks that share products cannot merge it; merge it before "
        "with `atoll export --merge`",
        needs.tensor_ranks, needs.path.string());
  }
  const int all = needs.threads > 0 ? needs.threads : available_cpus();
  const int threads = std::max(1, all / needs.tensor_ranks);
  return std::make_unique<serve::RanksExecutor>(
      needs.tensor_ranks,
      [&](serve::ModelRanks& ranks) {
        return open_step_model(needs.path, needs.weights, threads, room, {}, 0, &ranks);
      },
      vocab_size);
}

}  // namespace

std::unique_ptr<serve::StepModel> open_step_model(const model_dir::ModelPath& path,
                                                  serve::Weights weights, int threads,
                                                  const serve::StepRoom& room,
                                                  const serve::StepLayers& layers,
                                                  std::int64_t adapter_rank,
                                                  serve::ModelRanks* ranks) {
  const nn::ModelConfig config = model_dir::read_model_config(path);
  std::unique_ptr<Device> device = open_device({.threads = threads});
  model_dir::check_weights(path, config, *device, least_bytes(weights) * share_of(config, layers),
                           ranks == nullptr ? 1 : ranks->layout().size());
  std::unique_ptr<serve::StepModel> model;
  model_dir::take_memory(path, config, [&] {
    model = std::make_unique<serve::StepModel>(std::move(device), config, weights, room, layers,
                                               keep_of(path, weights), adapter_rank, ranks);
  });
  if (weights == serve::Weights::kF32 || weights == serve::Weights::kStored) {
    model_dir::load_parameters(path, model->model(), model->store(), model->threads());
  } else {
    model_dir::load_whole_parameters(path, model->model(), model->store());
  }
  return model;
}

std::unique_ptr<serve::BatchGenerator> open_generator(const GeneratorNeeds& needs,
                                                      const std::string& version) {
  const nn::ModelConfig config = model_dir::read_model_config(needs.path);
  const serve::StepRoom room = room_for(needs, config);
  const serve::BatchOptions options = {
      .slots = or_default(needs.slots, kSlots),
      .max_waiting = or_default(needs.max_queue, kMaxQueue),
      .max_waiting_tokens = or_default(needs.max_queue_tokens, kMaxQueueTokens),
      .version = version,
      .vocab_size = checked_vocabulary(needs.path, config),
      .max_adapters = needs.max_adapters};
  if (!needs.stages.stages.empty()) {
    return std::make_unique<serve::BatchGenerator>(
        open_pipeline(needs, config, room, options.vocab_size), options);
  }
  if (needs.tensor_ranks > 1) {
    return std::make_unique<serve::BatchGenerator>(open_ranks(needs, room, options.vocab_size),
                                                   options);
  }
  return std::make_unique<serve::BatchGenerator>(
      open_step_model(needs.path, needs.weights, needs.threads, room, {}, needs.adapter_rank),
      options);
}

std::unique_ptr<serve::BatchGenerator> open_task_generator(const model_dir::ModelPath& path,
                                                           serve::Weights weights, int threads,
                                                           std::int64_t positions,
                                                           std::int64_t at_once) {
  const nn::ModelConfig config = model_dir::read_model_config(path);
  const std::int64_t of_one = serve::StepModel::blocks_for(positions);
  const serve::StepRoom room = {
      .max_positions = positions,
      .max_rows = kTaskStepTokens,
      .num_blocks = std::max(of_one, std::min(of_one * at_once, blocks_in_memory(config)))};
  return std::make_unique<serve::BatchGenerator>(
      open_step_model(path, weights, threads, room),
      serve::BatchOptions{.slots = at_once,
                          .max_waiting = at_once,
                          .vocab_size = checked_vocabulary(path, config),
                          // Nobody waits for the next token.
                          .prompt_rows_beside_answers = kTaskStepTokens,
                          .last_needs_no_position = true});
}

bool replace_model(const GeneratorNeeds& needs, const std::string& version,
                   serve::BatchGenerator& generator) {
  const nn::ModelConfig config = model_dir::read_model_config(needs.path);
  if (config.max_positions < generator.room().max_positions) {
    throw user_error("{}: the model has {}, and is served with {}", needs.path.string(),
                     counted(config.max_positions, "position"), generator.room().max_positions);
  }
  return generator.replace_model(open_step_model(needs.path, needs.weights, needs.threads,
                                                 generator.room(), {}, needs.adapter_rank),
                                 version);
}

}  // namespace atl::cli
