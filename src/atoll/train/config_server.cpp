#include "atoll/train/config_server.h"

#include <filesystem>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/optim/registry.h"
#include "atoll/wire/address.h"

namespace atl::train {

namespace {

using param_server::Consistency;

std::string named(const Settings& settings, const char* key) {
  const Setting& setting = settings.find(key);
  return fmt::format("{} ({}, {})", key, to_toml(setting.value()), setting.origin);
}

bool given(const Settings& settings, const char* key) {
  return !settings.find(key).is_default();
}

constexpr const char* kOfServers[] = {
    "sync.consistency", "sync.staleness", "sync.compensation", "sync.elasticity", "sync.period",
    "sync.servers",     "sync.replicas",  "sync.workers",      "sync.worker",     "sync.addresses",
    "sync.transport",   "sync.identity",  "sync.secret",       "sync.disk_s"};

void only_of(const Settings& s, const char* key, bool chosen, const char* consistency) {
  if (chosen || !given(s, key)) return;
  throw user_error("{} is for sync.consistency {}, and {}; remove it", named(s, key), consistency,
                   named(s, "sync.consistency"));
}

void validate_consistency(const TrainConfig& config, const Settings& s) {
  const std::string& kind = config.sync.consistency;
  only_of(s, "sync.staleness", kind == "ssp", "ssp");
  only_of(s, "sync.compensation", kind == "ssp" || kind == "async", "ssp or async");
  only_of(s, "sync.elasticity", kind == "easgd", "easgd");
  only_of(s, "sync.period", kind == "easgd", "easgd");
  if (config.train.exact && consistency_of(config.sync) != Consistency::kBsp) {
    throw user_error(
        "{} and {}: what each push changes depends on when it comes; use "
        "sync.consistency=bsp, or leave train.exact out",
        named(s, "train.exact"), named(s, "sync.consistency"));
  }
  const bool is_bf16 = config.train.dtype == "bf16";
  if (is_bf16 && (kind == "easgd" || config.sync.compensation > 0)) {
    throw user_error("{} and {}: differences of values are finer than bf16; use train.dtype=f32",
                     named(s, "train.dtype"),
                     named(s, kind == "easgd" ? "sync.consistency" : "sync.compensation"));
  }
}

}  // namespace

void add_sync(Settings& settings, SyncSettings& s) {
  settings.group("sync",
                 "How replicas of the model are kept together: docs/which-sync.md, and for servers "
                 "docs/parameter-server.md.");
  settings.add("sync.mode", &s.mode,
               "allreduce: ranks add up gradients among themselves. ps: workers push them to "
               "parameter servers, which have the optimizer, and pull parameters.",
               one_of({"allreduce", "ps"}));
  settings.add("sync.consistency", &s.consistency,
               "ps: bsp makes one update of all workers' pushes, the same bits as all-reduce. ssp: "
               "as many pushes as there are workers are an update, whoever made them, and no "
               "worker computes with values that lack more than "
               "sync.staleness steps of another. async: without that bound. easgd: workers train "
               "models of their own, which are drawn to an average on the servers.",
               one_of({"bsp", "ssp", "async", "easgd"}));
  settings.add("sync.staleness", &s.staleness,
               "ssp: steps that the values a worker computes with may lack of another worker; 0: "
               "bsp.",
               between(0, 1 << 20));
  settings.add("sync.compensation", &s.compensation,
               "ssp and async: how much of a gradient's delay is made good (DC-ASGD's lambda over "
               "the root of the mean square of the gradient); 0: nothing.",
               between(0, 1000));
  settings.add("sync.elasticity", &s.elasticity,
               "easgd: how far worker and servers move towards each other in one average, of the "
               "distance; 0: 0.9 / sync.workers.",
               between(0, 1));
  settings.add("sync.period", &s.period, "easgd: steps between two averages of a worker.",
               at_least(1));
  settings.add("sync.servers", &s.servers,
               "Parameter servers, which share the parameters: that -n starts beside the workers, "
               "or that must be there before the run begins. More may join.",
               between(1, 4096));
  settings.add("sync.replicas", &s.replicas,
               "Servers that have a copy of each parameter: with 2, one may be lost at any moment "
               "and nothing with it.",
               between(1, 3));
  settings.add("sync.workers", &s.workers,
               "Workers that a step is cut for, and that must be there before the run begins; -n "
               "sets it. They may come and go later.",
               between(1, 1 << 16));
  settings
      .add("sync.worker", &s.worker,
           "Number of this worker, another for each; -n sets it. Worker 0 leads: the run begins "
           "with its parameters, and it writes the checkpoints.",
           between(0, 1 << 20))
      .with_scope(Scope::kHost);
  settings
      .add("sync.addresses", &s.addresses,
           "HOST:PORT of the run's scheduler, which `atoll server` without --join is; it knows "
           "the servers. Empty: -n starts all of them here.")
      .with_scope(Scope::kHost);
  settings
      .add(
          "sync.transport", &s.transport,
          "How workers, servers and scheduler speak with each other. grpc: with TLS, or on one "
          "machine with a secret. tcp: frames of the TCP engine of an island, faster, not "
          "encrypted, for networks that are trusted; without a secret, so is everybody who reaches "
          "their ports. The same for all processes of a run.",
          one_of({"grpc", "tcp"}))
      .with_scope(Scope::kHost);
  settings
      .add("sync.identity", &s.identity,
           "Directory with this worker's certificate (atoll certs issue); needed where servers "
           "are not on this host.")
      .with_scope(Scope::kHost);
  settings
      .add(
          "sync.secret", &s.secret,
          "File with the secret of the run, by which its processes know each other where they have "
          "no certificates: on one machine, and with sync.transport=tcp on several. -n makes one.")
      .with_scope(Scope::kHost);
  settings
      .add("sync.disk_s", &s.disk_s,
           "Seconds between two writes of a server to its disk, where sync.replicas = 1 and -n "
           "starts it: what came since the last is lost when it is killed.",
           between(0.05, 3600))
      .with_scope(Scope::kHost);
}

void validate_servers(const TrainConfig& config, const Settings& s) {
  if (config.sync.mode != "ps") {
    for (const char* key : kOfServers) {
      if (!given(s, key)) continue;
      throw user_error("{} is for sync.mode ps, and {}; set sync.mode=ps, or remove it",
                       named(s, key), named(s, "sync.mode"));
    }
    return;
  }
  const auto refuse = [&](bool is_given, const char* key, const char* remedy) {
    if (!is_given) return;
    throw user_error("{} does not go together with {} yet; {}", named(s, "sync.mode"),
                     named(s, key), remedy);
  };
  refuse(config.parallel.tp > 1, "parallel.tp", "leave one of them out");
  refuse(config.parallel.pp > 1, "parallel.pp", "leave one of them out");
  refuse(config.parallel.cp > 1, "parallel.cp", "leave one of them out");
  refuse(config.parallel.ep > 1, "parallel.ep", "leave one of them out");
  refuse(config.parallel.layout == "auto", "parallel.layout", "leave it out");
  refuse(config.dp.zero > 0, "dp.zero", "the servers have the optimizer's state: leave it out");
  refuse(config.dp.balance, "dp.balance", "leave it out");
  refuse(config.dp.compress != "none", "dp.compress", "leave one of them out");
  refuse(config.dp.compress_weights != "none", "dp.compress_weights", "leave one of them out");
  refuse(config.dp.compress_owed != "keep", "dp.compress_owed",
         "take a step with all-reduce first, which adds what ranks owe to its gradient");
  refuse(config.launch.replicate, "launch.replicate", "servers have copies: sync.replicas=2");
  refuse(!config.island.coordinator.empty(), "island.coordinator", "leave one of them out");
  refuse(config.lora.rank > 0, "lora.rank", "adapters are small: use all-reduce");
  refuse(config.offload.optimizer != "none", "offload.optimizer",
         "the servers have the optimizer's state: leave it out");
  refuse(config.model.num_experts > 0, "model.num_experts",
         "what a router balances is counted over ranks: use all-reduce");
  refuse(optim::find_optimizer(config.optim.kind).whole_matrices, "optim.kind",
         "its updates read whole matrices, and servers have parts: take adamw");
  validate_consistency(config, s);
  param_server::check_link(link_of(config.sync), "sync.transport", "sync.identity");
  if (!config.sync.addresses.empty()) {
    wire::parse_address(config.sync.addresses, "sync.addresses");
  }
  const std::int64_t micro_batches = config.train.batch_size / config.train.micro_batch;
  if (config.sync.workers > micro_batches) {
    throw user_error(
        "{}: a step has {} ({} / {}), and each worker needs one; lower "
        "train.micro_batch, or start fewer",
        named(s, "sync.workers"), counted(micro_batches, "micro-batch"),
        named(s, "train.batch_size"), named(s, "train.micro_batch"));
  }
  if (config.sync.replicas > config.sync.servers) {
    throw user_error("{} are more than {}; start as many servers as copies at least",
                     named(s, "sync.replicas"), named(s, "sync.servers"));
  }
}

param_server::LinkOptions link_of(const SyncSettings& sync) {
  const auto path_of = [](const std::string& text) -> std::optional<std::filesystem::path> {
    if (text.empty()) return std::nullopt;
    return text;
  };
  return {.transport = param_server::parse_transport(sync.transport, "sync.transport"),
          .identity = path_of(sync.identity),
          .secret = path_of(sync.secret)};
}

Consistency consistency_of(const SyncSettings& sync) {
  if (sync.consistency == "ssp") return sync.staleness == 0 ? Consistency::kBsp : Consistency::kSsp;
  if (sync.consistency == "async") return Consistency::kAsync;
  return sync.consistency == "easgd" ? Consistency::kEasgd : Consistency::kBsp;
}

std::int64_t num_lanes(const TrainConfig& config) {
  if (config.train.exact) return config.train.batch_size / config.train.micro_batch;
  return config.sync.workers;
}

double elasticity_of(const SyncSettings& sync) {
  if (sync.elasticity > 0) return sync.elasticity;
  return 0.9 / static_cast<double>(sync.workers);  // Zhang et al. 2015: beta / p
}

}  // namespace atl::train
