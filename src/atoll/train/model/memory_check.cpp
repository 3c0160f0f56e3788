#include "atoll/train/model/memory_check.h"

#include "atoll/base/error.h"
#include "atoll/base/processes/cgroup.h"
#include "atoll/base/quantity.h"
#include "atoll/device/free_memory.h"
#include "atoll/hub/model.h"
#include "atoll/model_dir/model_room.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/nn/models/sizes.h"
#include "atoll/text/tokenizer.h"
#include "atoll/train/config/device.h"
#include "atoll/train/model/options.h"
#include "atoll/train/model/run_device.h"
#include "atoll/train/ranks/cpu_share.h"

namespace atl::train {

namespace {

// The fewest tokens that the run's tokenizer can have.
std::int64_t least_vocabulary(const TrainConfig& config) {
  constexpr std::int64_t kBytes = 256;
  if (!config.data.tokenizer.empty()) {
    return Tokenizer::load(hub::local_tokenizer(config.data.tokenizer))
        .with_special_tokens(config.data.special_tokens)
        .vocab_size();
  }
  if (!config.model.is_inline()) return 1;  // the model has its own
  return config.data.new_tokenizer == "char" ? 1 : kBytes;
}

void check_memory_here(std::size_t planned, int ranks, bool is_least) {
  const std::uint64_t swap = swap_memory();
  if (planned <= (usable_memory() + swap) / static_cast<std::uint64_t>(ranks)) return;
  throw make_error(
      ErrorKind::kResource,
      "{} planned to take {} of memory{}{}, and {} may be used here{}; use {}a smaller "
      "train.micro_batch or model, or train.recompute=full",
      ranks == 1 ? "the run is" : fmt::format("{} ranks on this machine are", ranks),
      format_bytes(planned), ranks == 1 ? "" : " each", is_least ? " at least" : "",
      format_bytes(usable_memory()),
      swap > 0 ? fmt::format(" with {} of swap", format_bytes(swap)) : "",
      ranks == 1 ? "" : "fewer ranks here, ");
}

// Calls `check`; what it refuses for want of memory names the file that the model's sizes are from.
template <typename Check>
void naming_model(const TrainConfig& config, const nn::ModelConfig& model, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kResource || config.model.is_inline()) throw;
    const std::string whose =
        config.model.from.empty()
            ? fmt::format("; the model is that of {}: {}", config.model.config,
                          nn::size_list(model))
            : model_dir::whose_memory(model_dir::find_model(config.model.from, config.model.base),
                                      model);
    throw make_error(ErrorKind::kResource, "{}{}", error.what(), whose);
  }
}

// Bytes of the parameters of a model on one of `num_ranks` ranks, at least; none where they lie in
// a file.
std::size_t least_bytes(const StateOptions& options, int num_ranks) {
  if (options.training && options.offload.params) return 0;
  // Of weights in the bits of their files: GGUF's Q2_K takes the fewest, 2.6 a number.
  const double bytes =
      options.keep_stored ? 0.25 : static_cast<double>(dtype_size(options.build.dtype));
  return static_cast<std::size_t>(nn::least_parameters(options.model) * bytes / num_ranks);
}

}  // namespace

void check_memory(std::size_t planned, const comm::World& world, bool is_least) {
  check_memory_here(planned, ranks_here(world), is_least);
}

void check_memory_of(Device& device, std::size_t planned, const comm::World& world, bool is_least) {
  if (!is_gpu(device)) return check_memory(planned, world, is_least);
  const std::size_t free = free_memory_of(device);
  if (planned <= free) return;
  throw make_error(
      ErrorKind::kResource,
      "{} planned to take {} of GPU memory{}, and {} has {}{}; use a smaller train.micro_batch or "
      "model, train.recompute=selective or train.recompute=full, or share the state among more "
      "GPUs "
      "with dp.zero=3",
      world.size() == 1 ? "the run is" : "each rank is", format_bytes(planned),
      is_least ? " at least" : "", device.name(), format_bytes(device.total_memory()),
      free < device.total_memory() ? fmt::format(", of which {} are free", format_bytes(free))
                                   : "");
}

void check_parameters(const TrainConfig& config, const StateOptions& options, Device& device,
                      const comm::World& world) {
  naming_model(config, options.model, [&] {
    check_memory_of(device, least_bytes(options, world.size()), world, /*is_least=*/true);
  });
}

void check_state(const TrainConfig& config, const TrainState& state, Device& device,
                 const comm::World& world, bool is_least) {
  naming_model(config, state.options().model,
               [&] { check_memory_of(device, state.memory().total_bytes(), world, is_least); });
}

void check_before_ranks(const TrainConfig& config, int num_ranks) {
  if (config.device.kind != "cpu" || !config.data.shards.empty()) return;
  const StateOptions options = state_options(config, least_vocabulary(config), -1, num_ranks, 0);
  naming_model(config, options.model, [&] {
    check_memory_here(least_bytes(options, num_ranks), num_ranks, /*is_least=*/true);
    check_memory_here(TrainState(options).memory().total_bytes(), num_ranks, /*is_least=*/true);
  });
}

void check_before_tokens(const TrainConfig& config, Device& device, const comm::World& world) {
  if (!config.data.shards.empty()) return;  // the tokens are there
  StateOptions options =
      state_options(config, least_vocabulary(config), -1, world.size(), world.rank());
  options.build.device = device.kind();
  check_parameters(config, options, device, world);
  check_state(config, TrainState(options), device, world, /*is_least=*/true);
}

}  // namespace atl::train
