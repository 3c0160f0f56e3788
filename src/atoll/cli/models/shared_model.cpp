#include "atoll/cli/models/shared_model.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/launch/backend.h"
#include "atoll/launch/generation.h"
#include "atoll/launch/rank_main.h"
#include "atoll/launch/rank_processes.h"
#include "atoll/train/config/device.h"
#include "atoll/train/model/run_device.h"

namespace atl::cli {

namespace {

constexpr std::array kRankWords = {"-n", "--backend", "--hostfile", "--rendezvous"};

comm::WorldOptions world_options(const train::TrainConfig& config) {
  return {.timeout_s = config.comm.timeout_s,
          .algorithm = comm::algorithm_named(config.comm.algorithm)};
}

int run_parent(const launch::RankPlan& plan, const std::string& command,
               const Invocation& invocation) {
  launch::SignalFd signals;  // before any thread is made
  std::vector<std::string> hosts(static_cast<std::size_t>(plan.ranks));
  if (!plan.hostfile.empty()) {
    hosts = launch::place_ranks(launch::read_hostfile(plan.hostfile), plan.ranks, plan.hostfile);
  }
  const bool has_remote = std::any_of(hosts.begin(), hosts.end(),
                                      [](const std::string& host) { return !host.empty(); });
  launch::TrainCall call = launch::train_call("", without_rank_words(invocation.words));
  call.command = command;
  launch::Generations generations(plan.backend, call, plan.rendezvous, has_remote);
  return launch::finish(launch::outcome_of(generations.run(hosts, {}, signals)));
}

}  // namespace

void add_rank_arguments(ArgumentParser& parser, RankArguments& arguments) {
  parser.append_description(
      "\n\nA model that does not fit one rank is shared by several: -n 4 "
      "--parallel.tp=2 --parallel.pp=2\n(also parallel.ep, the experts); see "
      "docs/layouts.md. They are threads, or with --backend processes.");
  parser
      .add_option(
          "--device", arguments.device,
          "cpu, the default; cuda: an NVIDIA GPU, of several ranks one each; auto: cuda "
          "where a GPU can be used, else cpu; fake_cuda: for tests of atoll. As device.kind "
          "of a recipe: docs/gpus.md")
      .one_of({"cpu", "cuda", "auto", "fake_cuda"});
  parser.add_option("--threads", arguments.threads, "CPU threads; 0: all").range(0, 1024);
  launch::RankFlags& ranks = arguments.ranks;
  parser.add_option("-n", ranks.num_ranks, "Ranks that share the model");
  parser.add_option("--backend", ranks.backend, launch::backend_help());
  parser.add_option("--hostfile", ranks.hostfile, "Lines of NAME slots=N: hosts to start ranks on");
  parser.add_option("--rank", ranks.rank, "Which rank this is, when each is started by hand");
  parser.add_option("--ranks", ranks.ranks, "How many there are then");
  parser.add_option("--rendezvous", ranks.rendezvous,
                    "Where they meet: tcp://HOST:PORT or file:///DIRECTORY");
  parser.add_option("--report-fd", arguments.member.report_fd).hide();
  parser.add_option("--generation", arguments.member.generation).hide();
  parser.add_flag("--watch-input", arguments.member.watches_input).hide();
}

std::vector<std::string> shared_model_settings() {
  return {"parallel.tp",
          "parallel.pp",
          "parallel.ep",
          "parallel.cp",
          "parallel.cp_attention",
          "comm.timeout_s",
          "comm.algorithm",
          "device.kind",
          "device.index",
          "device.fake_order",
          "device.fake_memory_mib",
          "device.fake_lost_after"};
}

int run_on_ranks(
    const std::string& command, const RankArguments& arguments, const Invocation& invocation,
    const std::function<int(comm::World& world, const train::TrainConfig& config)>& body) {
  train::TrainConfig config;
  Settings settings = train::make_settings(config);
  for (const std::string& word : invocation.overrides) settings.override(word);
  if (!arguments.device.empty()) settings.override("--device.kind=" + arguments.device);
  config.device.threads = arguments.threads;
  train::validate_device(config, settings);
  const launch::RankPlan plan = launch::plan_ranks(arguments.ranks, launch::rank_environment());
  switch (plan.role) {
    case launch::Role::kParent:
      return run_parent(plan, command, invocation);
    case launch::Role::kRank:
      return launch::run_rank(plan, arguments.member, world_options(config),
                              [&](comm::World& world, launch::RankReporter& /*reporter*/) {
                                launch::agree_on_settings(world, ATOLL_VERSION, settings);
                                return body(world, config);
                              });
    case launch::Role::kThreads: {
      int code = 0;
      launch::run_rank_threads(plan, world_options(config), [&](comm::World& world) {
        const int mine = body(world, config);
        if (world.rank() == 0) code = mine;
      });
      return code;
    }
    case launch::Role::kAlone:
      break;
  }
  return body(*comm::open_self(), config);
}

std::unique_ptr<Device> open_model_device(const train::TrainConfig& config, comm::World& world) {
  train::TrainConfig mine = config;
  if (mine.device.threads == 0 && world.size() > 1) {
    mine.device.threads = launch::fair_threads(world);
  }
  return train::open_run_device(mine, world);
}

std::vector<std::string> without_rank_words(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      kept.insert(kept.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    const auto begins = [&](const std::string& flag) {
      return flag == "-n" ? words[i].starts_with(flag) : words[i].starts_with(flag + "=");
    };
    const auto is = [&](const std::string& flag) { return words[i] == flag; };
    if (std::any_of(kRankWords.begin(), kRankWords.end(), is)) {
      ++i;  // its value
    } else if (std::none_of(kRankWords.begin(), kRankWords.end(), begins)) {
      kept.push_back(words[i]);
    }
  }
  return kept;
}

serve::ModelLayout model_layout(const train::ParallelSettings& parallel, int num_ranks) {
  if (parallel.cp > 1) {
    throw user_error(
        "parallel.cp = {}: a token that is generated is one row, of which ranks cannot have parts; "
        "the nearest layout that works is --parallel.pp={}, which shares memory too",
        parallel.cp, parallel.cp * parallel.pp);
  }
  const serve::ModelLayout layout = {static_cast<int>(parallel.tp), static_cast<int>(parallel.pp),
                                     static_cast<int>(parallel.ep)};
  if (layout.size() == num_ranks) return layout;
  throw user_error(
      "parallel.tp = {}, parallel.pp = {} and parallel.ep = {} share a model among {}, and there "
      "{} "
      "{}; each sequence is one token after the other, so further ranks have nothing to do: start "
      "them with -n {}, or share the model among all",
      layout.tensor, layout.pipeline, layout.experts, counted(layout.size(), "rank"),
      num_ranks == 1 ? "is" : "are", num_ranks, layout.size());
}

std::int64_t number_of_first(comm::World& world, std::int64_t number) {
  world.all().broadcast({&number, {Dtype::kI64, {1}}}, 0);
  return number;
}

}  // namespace atl::cli
