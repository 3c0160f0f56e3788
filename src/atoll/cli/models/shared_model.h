#pragma once

// Commands whose model ranks may share: where its ranks are, and what each of them has.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/cli/command.h"
#include "atoll/comm/world.h"
#include "atoll/device/device.h"
#include "atoll/launch/rank_main.h"
#include "atoll/launch/ranks.h"
#include "atoll/serve/model_ranks.h"
#include "atoll/train/config/config.h"

namespace atl::cli {

/// What a command line says about ranks and what each of them computes on.
struct RankArguments {
  std::string device;  ///< device.kind; empty: the CPU
  int threads = 0;     ///< device.threads; 0: of several ranks, this one's share of the CPUs
  launch::RankFlags ranks;
  launch::RankOptions member;
};

/// Declares -n and its like, --device and --threads on `parser`.
void add_rank_arguments(ArgumentParser& parser, RankArguments& arguments);

/// The settings that such a command takes, for Command::settings.
std::vector<std::string> shared_model_settings();

/// Calls `body` on every rank and returns what the first returns: threads of this process,
/// processes, or this one alone. `config` has the settings of `invocation`, and all else is as by
/// default. Throws Error(kUser) for a setting that means nothing here.
int run_on_ranks(
    const std::string& command, const RankArguments& arguments, const Invocation& invocation,
    const std::function<int(comm::World& world, const train::TrainConfig& config)>& body);

/// What this rank computes on, as `config` of run_on_ranks says. Every rank must call it. Throws as
/// train::open_run_device.
std::unique_ptr<Device> open_model_device(const train::TrainConfig& config, comm::World& world);

/// The words of a command line without those about ranks, for processes that are told theirs.
std::vector<std::string> without_rank_words(const std::vector<std::string>& words);

/// How `num_ranks` share a model that generates. Throws Error(kUser), naming the nearest layout
/// that works, where they cannot.
serve::ModelLayout model_layout(const train::ParallelSettings& parallel, int num_ranks);

/// Gives all ranks the number that the first has.
std::int64_t number_of_first(comm::World& world, std::int64_t number);

}  // namespace atl::cli
