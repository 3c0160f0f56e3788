#include "atoll/train/room.h"

#include "atoll/base/cgroup.h"
#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/device/free_memory.h"
#include "atoll/text/tokenizer.h"
#include "atoll/train/options.h"
#include "atoll/train/run_device.h"

namespace atl::train {

namespace {

// The fewest tokens that the run's tokenizer can have.
std::int64_t least_vocabulary(const TrainConfig& config) {
  constexpr std::int64_t kBytes = 256;
  if (!config.data.tokenizer.empty()) return Tokenizer::load(config.data.tokenizer).vocab_size();
  if (!config.model.is_inline()) return 1;  // the model has its own
  return config.data.new_tokenizer == "char" ? 1 : kBytes;
}

}  // namespace

int ranks_here(const comm::World& world) {
  return world.options().local_ranks > 0 ? world.options().local_ranks : world.size();
}

void check_memory(std::size_t planned, const comm::World& world, bool is_least) {
  const auto ranks = static_cast<std::uint64_t>(ranks_here(world));
  const std::uint64_t swap = swap_memory();
  if (planned <= (usable_memory() + swap) / ranks) return;
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

void check_before_tokens(const TrainConfig& config, Device& device, const comm::World& world) {
  if (!config.data.shards.empty()) return;  // the tokens are there
  StateOptions options =
      state_options(config, least_vocabulary(config), -1, world.size(), world.rank());
  options.build.device = device.kind();
  const TrainState state(options);
  check_memory_of(device, state.memory().total_bytes(), world, /*is_least=*/true);
}

}  // namespace atl::train
