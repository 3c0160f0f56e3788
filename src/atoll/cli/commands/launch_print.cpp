#include "atoll/cli/commands/launch_print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/processes/resident.h"
#include "atoll/cli/commands/auto_layout.h"
#include "atoll/cli/models/vocabulary.h"
#include "atoll/launch/engines/manifest.h"
#include "atoll/plan/gpu.h"
#include "atoll/plan/memory.h"
#include "atoll/train/config/outer_options.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/model/options.h"
#include "atoll/train/ranks/sharing.h"
#include "atoll/train/trainer.h"

namespace atl::cli {

namespace {

// What is asked for beyond the plan: a scheduler ends whoever takes more than it asked for, and
// files that a run reads and writes count for some of them.
constexpr double kRoom = 1.5;

// How many ranks a layout takes at least.
std::int64_t ranks_of_layout(const train::TrainConfig& config) {
  return config.parallel.tp * config.parallel.pp * config.parallel.cp * config.parallel.ep;
}

// What a rank takes at most, with the program and, on an island, the state of outer steps.
std::size_t bytes_of_rank(const train::TrainConfig& config, int ranks) {
  const std::int64_t vocab_size = find_vocabulary(config).size;
  const int rank = ranks == 1 ? 0 : plan::largest_memory(config, vocab_size, ranks).rank;
  train::TrainState state(train::state_options(config, vocab_size, -1, ranks, rank));
  std::size_t bytes = state.memory().total_bytes() + resident_bytes();
  if (config.outer.islands > 0) {
    for (const island::OuterMemoryPart& part :
         train::outer_memory_of_rank(config.outer, state.whole_layout(), ranks)) {
      bytes += part.bytes;
    }
  }
  return bytes;
}

bool is_said_elsewhere(const std::string& override) {
  return override.starts_with("--run.dir=") || override.starts_with("--outer.islands=") ||
         override.starts_with("--island.");
}

}  // namespace

void add_print_flags(ArgumentParser& parser, PrintFlags& flags) {
  parser.add_option("--print", flags.kind,
                    fmt::format("Start nothing: print a script or manifest that starts it ({})",
                                fmt::join(launch::manifest_kinds(), ", ")));
  parser.add_option("--image", flags.image, "Which image has atoll, for --print of containers");
}

int print_manifest(const PrintFlags& flags, const launch::LaunchOptions& options,
                   const Invocation& invocation) {
  const int slots = std::max(1, options.slots);
  std::vector<std::string> overrides = invocation.overrides;
  if (options.limits.max_ranks > 0) {
    overrides = with_layout(options.recipe, overrides, options.limits.max_ranks);
  }
  const train::Recipe recipe(options.recipe, overrides);
  const train::TrainConfig& config = recipe.config();
  train::require_chosen_layout(config, "say how many ranks there are, --max-ranks=N");
  const int ranks = options.limits.max_ranks > 0 ? options.limits.max_ranks
                                                 : static_cast<int>(ranks_of_layout(config)) *
                                                       (ranks_of_layout(config) == 1 ? slots : 1);
  if (ranks % slots != 0) {
    throw user_error("--slots={}: {} ranks are not whole machines of as many; say another --slots",
                     slots, ranks);
  }
  train::check_ranks(config, ranks);
  const bool has_gpus = plan::takes_gpu(config);
  launch::ManifestRequest request = {
      .name = launch::job_name(std::filesystem::path(config.run.dir).filename().string()),
      .recipe = options.recipe,
      .recipe_text = options.recipe.empty() ? "" : read_file(options.recipe),
      .run_dir = config.run.dir,
      .machines = ranks / slots,
      .ranks_each = slots,
      .min_ranks = options.limits.min_ranks,
      .threads = static_cast<int>(config.device.threads),
      .has_gpus = has_gpus,
      .islands = static_cast<int>(config.outer.islands),
      .coordinator = config.island.coordinator,
      .image = flags.image};
  std::copy_if(overrides.begin(), overrides.end(), std::back_inserter(request.overrides),
               [](const std::string& word) { return !is_said_elsewhere(word); });
  if (!has_gpus) {
    request.memory_bytes =
        static_cast<std::size_t>(kRoom * static_cast<double>(bytes_of_rank(config, ranks)) * slots);
  }
  fmt::print("{}", launch::manifest(flags.kind, request));
  return 0;
}

}  // namespace atl::cli
