#include "atoll/plan/choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/quantity.h"
#include "atoll/base/settings/toml.h"
#include "atoll/base/threads/thread_pool.h"
#include "atoll/plan/gpu.h"
#include "atoll/plan/measure.h"
#include "atoll/train/model/options.h"

namespace atl::plan {

namespace fs = std::filesystem;

namespace {

// So many ranks share this machine's CPUs at most; to see more, they are on machines like it.
constexpr int kMostRanksOfACpu = 4;
constexpr std::size_t kMostMicroBatches = 3;
constexpr int kWidestTensor = 8;
constexpr int kWidestContext = 4;

int ranks_of_host(const Hosts& hosts, const std::optional<Figures>& read) {
  int per_host = hosts.ranks_per_host;
  if (per_host == 0 && read) per_host = read->ranks_per_host;
  const bool fits = hosts.ranks <= kMostRanksOfACpu * available_cpus();
  if (per_host == 0) per_host = !hosts.network && fits ? hosts.ranks : 1;
  if (per_host > hosts.ranks) per_host = hosts.ranks;
  if (hosts.ranks % per_host == 0) return per_host;
  throw user_error("{} cannot be cut into hosts of {}; give a divisor as --ranks-per-host",
                   counted(hosts.ranks, "rank"), per_host);
}

std::vector<std::int64_t> measured_micro_batches(const train::TrainConfig& config, bool given) {
  if (given) return {config.train.micro_batch};
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= config.train.batch_size; ++d) {
    const bool is_short = d == 1 || d * config.train.context <= 1024;
    if (config.train.batch_size % d == 0 && is_short) all.push_back(d);
  }
  if (all.size() > kMostMicroBatches) all = {all.front(), all[all.size() / 2], all.back()};
  return all;
}

std::vector<int> measured_tensor(const nn::ModelConfig& model, int ranks) {
  std::vector<int> all;
  for (int t = 1; t <= std::min(ranks, kWidestTensor); ++t) {
    if (ranks % t == 0 && model.heads.num_heads % t == 0) all.push_back(t);
  }
  return all;
}

std::vector<int> measured_context(std::int64_t context, int ranks) {
  std::vector<int> all;
  for (int parts = 1; parts <= std::min(ranks, kWidestContext); ++parts) {
    if (ranks % parts == 0 && context % parts == 0) all.push_back(parts);
  }
  return all;
}

Figures measure_here(const fs::path& path, const std::vector<std::string>& overrides,
                     std::int64_t vocab_size, const Hosts& hosts, int per_host) {
  Variants variants(path, overrides);
  const Given given = given_in(variants.settings());
  const Layout wanted = layout_of(variants.config(), hosts.ranks);
  const std::vector<std::int64_t> micro_batches =
      measured_micro_batches(variants.config(), given.micro_batch);
  Layout one;  // each rank on its own
  one.micro_batch = micro_batches[micro_batches.size() / 2];
  train::TrainConfig config = variants.with(one);
  config.dp = {};  // it shares nothing
  config.launch = {};
  MeasureOptions options = {.ranks = per_host,
                            .threads = static_cast<int>(config.device.threads),
                            .state = train::state_options(config, vocab_size, -1)};
  options.state.data_parallel = {};
  options.micro_batches = micro_batches;
  options.tensor = given.tensor ? std::vector<int>{wanted.tensor}
                                : measured_tensor(options.state.model, hosts.ranks);
  options.context = given.context ? std::vector<int>{wanted.context}
                                  : measured_context(options.state.context, hosts.ranks);
  return measure(options);
}

}  // namespace

Question ask(const fs::path& recipe, const std::vector<std::string>& overrides,
             std::int64_t vocab_size, const Hosts& hosts) {
  check_but_for_layout(recipe, overrides);
  std::optional<Figures> read;
  if (!hosts.figures.empty()) {
    read = read_figures(hosts.figures);
  } else if (const Variants as_given(recipe, overrides);
             !hosts.gpu.empty() || takes_gpu(as_given.config())) {
    read = figures_for_gpu(hosts.gpu, as_given.config());
  }
  const int per_host = ranks_of_host(hosts, read);
  Question question = {
      .recipe = recipe,
      .overrides = overrides,
      .ranks = hosts.ranks,
      .vocab_size = vocab_size,
      .figures = read ? *read : measure_here(recipe, overrides, vocab_size, hosts, per_host)};
  question.figures.ranks_per_host = per_host;
  if (hosts.network) question.figures.network = *hosts.network;
  const double memory = hosts.memory_gib.value_or(question.figures.memory_gib);
  if (memory <= 0) {
    throw user_error("{} has no machine.memory_gib, a rank's memory; add it, or give --memory",
                     hosts.figures.string());
  }
  question.memory_bytes = static_cast<std::size_t>(memory * (1 << 30));
  return question;
}

std::optional<Choice> read_choice(const fs::path& run_directory) {
  const fs::path path = run_directory / kChoiceFile;
  if (!path_exists(path)) return std::nullopt;
  Choice choice;
  bool has_ranks = false, has_arguments = false, has_seconds = false;
  for (const TomlEntry& entry : parse_toml(read_file(path), path.string())) {
    if (const auto* ranks = std::get_if<std::int64_t>(&entry.value);
        entry.key == "ranks" && ranks != nullptr) {
      choice.ranks = static_cast<int>(*ranks);
      has_ranks = true;
    } else if (const auto* arguments = std::get_if<std::vector<std::string>>(&entry.value);
               entry.key == "arguments" && arguments != nullptr) {
      choice.arguments = *arguments;
      has_arguments = true;
    } else if (const auto* seconds = std::get_if<double>(&entry.value);
               entry.key == "step_seconds" && seconds != nullptr) {
      choice.step_seconds = *seconds;
      has_seconds = true;
    } else {
      throw user_error(
          "{}:{}: {} is nothing that a chosen layout has; remove the file to plan anew",
          path.string(), entry.line, entry.key);
    }
  }
  if (has_ranks && has_arguments && has_seconds) return choice;
  throw user_error("{} lacks ranks, arguments or step_seconds; remove the file to plan anew",
                   path.string());
}

void write_choice(const fs::path& run_directory, const Choice& choice) {
  fs::create_directories(run_directory);
  write_file(run_directory / kChoiceFile,
             fmt::format("# The layout that the planner chose, and the seconds of a step as "
                         "predicted.\nranks = {}\narguments = {}\nstep_seconds = {}\n",
                         choice.ranks, atl::to_toml(SettingValue(choice.arguments)),
                         atl::to_toml(SettingValue(choice.step_seconds))));
}

}  // namespace atl::plan
