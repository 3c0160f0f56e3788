#include "atoll/train/config/server.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/optim/registry.h"
#include "atoll/train/config/rules.h"
#include "atoll/wire/address.h"

namespace atl::train {

namespace {

using param_server::Consistency;

// Whether parameters are on servers; the checks below are of such runs.
bool has_servers(const TrainConfig& config) {
  return config.sync.mode == "ps";
}

std::vector<std::string> elementwise_optimizers() {
  std::vector<std::string> names;
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds()) {
    if (!kind.whole_matrices) names.emplace_back(kind.name);
  }
  return names;
}

// By what sync.consistency means: ssp with no staleness is bsp.
void check_exact_sums(const TrainConfig& config, const Settings& s) {
  if (!has_servers(config) || !config.train.exact) return;
  if (consistency_of(config.sync) == Consistency::kBsp) return;
  throw user_error(
      "{} and {}: what each push changes depends on when it comes; use sync.consistency=bsp, or "
      "leave train.exact out",
      named(s, "train.exact"), named(s, "sync.consistency"));
}

void check_sync_link(const TrainConfig& config, const Settings&) {
  if (!has_servers(config)) return;
  param_server::check_link(link_of(config.sync), "sync.transport", "sync.identity");
}

void check_sync_address(const TrainConfig& config, const Settings&) {
  if (!has_servers(config) || config.sync.addresses.empty()) return;
  wire::parse_address(config.sync.addresses, "sync.addresses");
}

void check_workers(const TrainConfig& config, const Settings& s) {
  if (!has_servers(config)) return;
  const std::int64_t micro_batches = config.train.batch_size / config.train.micro_batch;
  if (config.sync.workers <= micro_batches) return;
  throw user_error(
      "{}: a step has {} ({} / {}), and each worker needs one; lower train.micro_batch, or start "
      "fewer",
      named(s, "sync.workers"), counted(micro_batches, "micro-batch"), named(s, "train.batch_size"),
      named(s, "train.micro_batch"));
}

void check_replicas(const TrainConfig& config, const Settings& s) {
  if (!has_servers(config) || config.sync.replicas <= config.sync.servers) return;
  throw user_error("{} are more than {}; start as many servers as copies at least",
                   named(s, "sync.replicas"), named(s, "sync.servers"));
}

}  // namespace

void add_sync(SettingRegistry& settings, SyncSettings& s) {
  settings.group("sync",
                 "How replicas of the model are kept together: docs/which-sync.md, and for servers "
                 "docs/parameter-server.md.");
  constexpr const char* kFiner = "differences of values are finer than bf16";
  constexpr const char* kDecide = "the servers decide when a checkpoint is written";
  constexpr const char* kHaveModel =
      "the servers have the model, and decide when it is saved and when the run ends";
  constexpr const char* kHaveState = "the servers have the optimizer's state";
  settings
      .add("sync.mode", &s.mode,
           "allreduce: ranks add up gradients among themselves. ps: workers push them to parameter "
           "servers, which have the optimizer, and pull parameters.",
           one_of({"allreduce", "ps"}))
      .when("ps")
      .not_beside("parallel.tp")
      .not_beside("parallel.pp")
      .not_beside("parallel.cp")
      .not_beside("parallel.ep")
      .not_beside("parallel.layout", "auto", "")
      .not_beside("dp.zero", kHaveState)
      .not_beside("offload.optimizer", kHaveState)
      .not_beside("dp.balance")
      .not_beside("dp.compress")
      .not_beside("dp.compress_weights")
      .not_beside("dp.compress_owed",
                  "a step of all-reduce first adds the residual to its gradient")
      .not_beside("launch.replicate", "servers have copies where sync.replicas is 2")
      .not_beside("island.coordinator")
      .not_beside("lora.rank", "adapters are small enough for all-reduce")
      .not_beside("model.num_experts", "what a router balances is counted over ranks")
      .needs("optim.kind", Values(elementwise_optimizers()),
             "updates of whole matrices are not for servers, which have parts of them")
      .not_beside("run.on_signal", kDecide)
      .not_beside("eval.samples", kHaveModel)
      .not_beside("checkpoint.keep_best", kHaveModel)
      .not_beside("train.early_stop", kHaveModel);
  settings
      .add("sync.consistency", &s.consistency,
           "ps: bsp makes one update of all workers' pushes, the same bits as all-reduce. ssp: as "
           "many pushes as there are workers are an update, whoever made them, and no worker "
           "computes with values that lack more than sync.staleness steps of another. async: "
           "without that bound. easgd: workers train models of their own, which are drawn to an "
           "average on the servers.",
           one_of({"bsp", "ssp", "async", "easgd"}))
      .only_with("sync.mode", "ps")
      .checked("With train.exact only bsp, or ssp with sync.staleness 0.", check_exact_sums)
      .when("easgd")
      .needs("train.dtype", "f32", kFiner);
  settings
      .add("sync.staleness", &s.staleness,
           "ssp: steps that the values a worker computes with may lack of another worker; 0: bsp.",
           between(0, 1 << 20))
      .only_with("sync.mode", "ps")
      .only_with("sync.consistency", "ssp");
  settings
      .add("sync.compensation", &s.compensation,
           "ssp and async: how much of a gradient's delay is made good (DC-ASGD's lambda over the "
           "root of the mean square of the gradient); 0: nothing.",
           between(0, 1000))
      .only_with("sync.mode", "ps")
      .only_with("sync.consistency", {"ssp", "async"})
      .needs("train.dtype", "f32", kFiner);
  settings
      .add("sync.elasticity", &s.elasticity,
           "easgd: how far worker and servers move towards each other in one average, of the "
           "distance; 0: 0.9 / sync.workers.",
           between(0, 1))
      .only_with("sync.mode", "ps")
      .only_with("sync.consistency", "easgd");
  settings
      .add("sync.period", &s.period, "easgd: steps between two averages of a worker.", at_least(1))
      .only_with("sync.mode", "ps")
      .only_with("sync.consistency", "easgd");
  settings
      .add("sync.servers", &s.servers,
           "Parameter servers, which share the parameters: that -n starts beside the workers, or "
           "that must be there before the run begins. More may join.",
           between(1, 4096))
      .only_with("sync.mode", "ps");
  settings
      .add("sync.replicas", &s.replicas,
           "Servers that have a copy of each parameter: with 2, one may be lost at any moment and "
           "nothing with it.",
           between(1, 3))
      .only_with("sync.mode", "ps")
      .checked("At most sync.servers.", check_replicas);
  settings
      .add("sync.workers", &s.workers,
           "Workers that a step is cut for, and that must be there before the run begins; -n sets "
           "it. They may come and go later.",
           between(1, 1 << 16))
      .only_with("sync.mode", "ps")
      .checked("At most a step's micro-batches, train.batch_size / train.micro_batch.",
               check_workers);
  settings
      .add("sync.worker", &s.worker,
           "Number of this worker, another for each; -n sets it. Worker 0 leads: the run begins "
           "with its parameters, and it writes the checkpoints.",
           between(0, 1 << 20))
      .with_scope(Scope::kHost)
      .only_with("sync.mode", "ps");
  settings
      .add("sync.addresses", &s.addresses,
           "HOST:PORT of the run's scheduler, which `atoll server` without --join is; it knows the "
           "servers. Empty: -n starts all of them here.")
      .with_scope(Scope::kHost)
      .only_with("sync.mode", "ps")
      .checked("", check_sync_address);
  settings
      .add(
          "sync.transport", &s.transport,
          "How workers, servers and scheduler speak with each other. grpc: with TLS, or on one "
          "machine with a secret. tcp: frames of the TCP engine of an island, faster, not "
          "encrypted, for networks that are trusted; without a secret, so is everybody who reaches "
          "their ports. The same for all processes of a run.",
          one_of({"grpc", "tcp"}))
      .with_scope(Scope::kHost)
      .only_with("sync.mode", "ps")
      .checked("tcp: not with sync.identity.", check_sync_link);
  settings
      .add("sync.identity", &s.identity,
           "Directory with this worker's certificate (atoll certs issue); needed where servers are "
           "not on this host.")
      .with_scope(Scope::kHost)
      .only_with("sync.mode", "ps");
  settings
      .add(
          "sync.secret", &s.secret,
          "File with the secret of the run, by which its processes know each other where they have "
          "no certificates: on one machine, and with sync.transport=tcp on several. -n makes one.")
      .with_scope(Scope::kHost)
      .only_with("sync.mode", "ps");
  settings
      .add("sync.disk_s", &s.disk_s,
           "Seconds between two writes of a server to its disk, where sync.replicas = 1 and -n "
           "starts it: what came since the last is lost when it is killed.",
           between(0.05, 3600))
      .with_scope(Scope::kHost)
      .only_with("sync.mode", "ps");
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
