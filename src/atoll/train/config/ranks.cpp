// dp.*, parallel.*, comm.* and launch.*: what ranks share, and how they talk to each other.

#include <algorithm>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/optim/registry.h"
#include "atoll/train/config/compress.h"
#include "atoll/train/config/groups.h"
#include "atoll/train/config/rules.h"

namespace atl::train {

namespace {

void check_rows(const TrainConfig& config, const Settings& s) {
  const ParallelSettings& parallel = config.parallel;
  if (parallel.tp == 1 || config.train.context % (parallel.tp * parallel.cp) == 0) return;
  throw user_error("{} must be a multiple of {}{}: the ranks share the rows of a sequence evenly",
                   named(s, "train.context"), named(s, "parallel.tp"),
                   parallel.cp > 1 ? " times " + named(s, "parallel.cp") : "");
}

void check_whole_matrices(const TrainConfig& config, const Settings& s) {
  if (config.parallel.tp == 1 || config.optim.masters != "stochastic") return;
  if (!optim::find_optimizer(config.optim.kind).whole_matrices) return;
  throw user_error(
      "{} does not go together with {} and {}: parts of {}'s matrices are rounded by nothing but "
      "their masters; set optim.masters=f32",
      named(s, "parallel.tp"), named(s, "optim.masters"), named(s, "optim.kind"),
      config.optim.kind);
}

void check_sequences(const TrainConfig& config, const Settings& s) {
  const ParallelSettings& parallel = config.parallel;
  if (config.train.context % parallel.cp == 0) return;
  // Twice that serves a ring, too.
  const std::int64_t step = std::lcm(2, parallel.tp) * parallel.cp;
  throw user_error(
      "{} must be a multiple of {}: the ranks share each sequence evenly; the nearest is "
      "--train.context={}",
      named(s, "train.context"), named(s, "parallel.cp"),
      std::max(step, (config.train.context + step / 2) / step * step));
}

// Copies of a state that ranks have in parts.
void check_copies(const TrainConfig& config, const Settings& s) {
  if (!config.parallel.has_parts()) {
    if (!is_given(s, "launch.replicate_every")) return;
    throw user_error(
        "{} is for ranks that have parts of the model (parallel.tp, pp, cp or ep), and copies of "
        "whole ones follow every step; leave it out",
        named(s, "launch.replicate_every"));
  }
  if (!config.launch.replicate) {
    if (!is_given(s, "launch.replicate_every")) return;
    throw user_error("{} without launch.replicate does nothing; give that too",
                     named(s, "launch.replicate_every"));
  }
  if (config.island.coordinator.empty()) return;
  throw user_error(
      "{} does not go together with {} and ranks that have parts of the model yet: what an island "
      "exchanges is in no copy; leave it out, and a lost rank costs the steps since the newest "
      "checkpoint",
      named(s, "launch.replicate"), named(s, "island.coordinator"));
}

}  // namespace

void add_ranks(SettingRegistry& settings, TrainConfig& c) {
  settings.group("dp", "What data-parallel ranks share; docs/data-parallel.md has the formulas.",
                 Scope::kIsland);
  settings.add(
      "dp.zero", &c.dp.zero,
      "ZeRO stage: 0 shares nothing, 1 optimizer state, 2 gradients too, 3 parameters too.",
      between(0, 3));
  settings.add("dp.shard", &c.dp.shard,
               "Ranks that share one copy, of which there are then several (HSDP); 0: all ranks "
               "share one.",
               between(0, 1 << 20));
  settings.add("dp.bucket_mib", &c.dp.bucket_mib,
               "MiB of gradients that are reduced at once; dp.zero = 3 goes by blocks.",
               between(0.001, 1 << 20));
  settings
      .add("dp.balance", &c.dp.balance,
           "Give slower ranks fewer micro-batches of each step, by their measured speed. Without "
           "train.exact that changes bits from run to run.")
      .not_beside("device.kind", {"cuda", "fake_cuda"},
                  "the times that it goes by are those of the host, not of the GPU");
  add_compress(settings, c.dp);
  settings.group(
      "parallel",
      "How ranks share the work of one model; what is left of the ranks is data parallel.",
      Scope::kIsland);
  settings.add(
      "parallel.layout", &c.parallel.layout,
      "Who chooses how ranks share the work: manual, the settings do; auto, the planner does "
      "before the run begins (docs/which-layout.md). It leaves what the recipe gives of dp.zero, "
      "train.recompute and train.micro_batch as it is.",
      one_of({"manual", "auto"}));
  settings
      .add("parallel.tp", &c.parallel.tp,
           "Ranks that share each product (tensor parallel) and the rows between them (sequence "
           "parallel): docs/tensor-parallel.md. A divisor of the ranks, of the heads and of "
           "train.context, and a divisor or a multiple of the key-value heads.",
           between(1, 1 << 20))
      .settled_by("parallel.layout", "auto", "auto chooses it")
      .not_beside("dp.balance")
      .checked("parallel.tp x parallel.cp divides train.context.", check_rows)
      .checked("Not with optim.kind muon and optim.masters stochastic.", check_whole_matrices);
  settings
      .add("parallel.pp", &c.parallel.pp,
           "Ranks that have a row of the model's blocks each, which every micro-batch passes "
           "through (pipeline parallel): docs/pipeline-parallel.md. A divisor of the ranks.",
           between(1, 1 << 20))
      .settled_by("parallel.layout", "auto", "auto chooses it")
      .not_beside("train.exact")
      .not_beside("dp.balance");
  settings
      .add("parallel.schedule", &c.parallel.schedule,
           "The order of work in a pipeline. It changes time and memory, and no bit.",
           one_of({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}))
      .settled_by("parallel.layout", "auto", "auto chooses it");
  settings
      .add("parallel.chunks", &c.parallel.chunks,
           "Rows of blocks on each rank of a pipeline, for interleaved: more idle less and send "
           "more; 0: as few as parallel.schedule takes.",
           between(0, 1 << 10))
      .settled_by("parallel.layout", "auto", "auto chooses it");
  settings
      .add(
          "parallel.cp", &c.parallel.cp,
          "Ranks that have a part of each sequence (context parallel): docs/context-parallel.md. A "
          "divisor of the ranks and of train.context.",
          between(1, 1 << 20))
      .settled_by("parallel.layout", "auto", "auto chooses it")
      .not_beside("dp.balance")
      .checked("A divisor of train.context.", check_sequences);
  settings.add(
      "parallel.cp_attention", &c.parallel.cp_attention,
      "How these ranks attend to all of a sequence. ulysses: each has all tokens of a part of the "
      "heads meanwhile, so parallel.cp divides heads and key-value heads. ring: keys and values go "
      "from rank to rank; 2 parallel.cp divides train.context. auto: ulysses where it can, else "
      "ring.",
      one_of({"auto", "ulysses", "ring"}));
  settings
      .add("parallel.ep", &c.parallel.ep,
           "Ranks that have some of the experts of each block, and exchange tokens (expert "
           "parallel): docs/expert-parallel.md. A divisor of the ranks, of the experts and of a "
           "step's micro-batches.",
           between(1, 1 << 16))
      .settled_by("parallel.layout", "auto", "auto chooses it")
      .not_beside("train.exact")
      .not_beside("lora.rank", "dp.zero shares the memory of adapters")
      .not_beside("dp.balance");
}

void add_links(SettingRegistry& settings, TrainConfig& c) {
  settings.group("comm", "How ranks talk to each other.", Scope::kIsland);
  settings.add("comm.timeout_s", &c.comm.timeout_s,
               "Seconds after which a collective that is not done ends the run, naming who is "
               "missing.",
               between(0.1, 1e6));
  settings.add(
      "comm.algorithm", &c.comm.algorithm,
      "How bytes go in collectives between hosts: docs/collectives.md. direct: each rank to each "
      "other. ring: each rank to its two neighbours. hierarchical: within hosts, then between "
      "neighbouring hosts. auto: the fastest of them, measured in the first calls of each size. "
      "Changes no bit.",
      one_of({"auto", "direct", "ring", "hierarchical"}));
  settings
      .add("comm.gpu", &c.comm.gpu,
           "How what ranks exchange goes between GPUs: host, through host memory, by the backend "
           "of the ranks; nccl, by NCCL, with sums in rank order all the same. Changes no bit.",
           one_of({"host", "nccl"}))
      .only_with("device.kind", {"cuda", "auto"});
  settings
      .add("comm.gpu_sums", &c.comm.gpu_sums,
           "comm.gpu = nccl: who adds up what GPUs have. ordered: a kernel of atoll's, in rank "
           "order, the same bits everywhere. nccl: NCCL itself, in an order that hangs on its "
           "version and on how GPUs are linked. It was never run on a GPU.",
           one_of({"ordered", "nccl"}))
      .needs("comm.gpu", "nccl", "it is a sum that NCCL makes")
      .not_beside(
          "train.exact",
          "NCCL adds in an order that hangs on the number of ranks and on how they are linked");
  settings.add("comm.check_every", &c.comm.check_every,
               "Steps between two comparisons of the ranks' parameters by hash; 0: never.",
               at_least(0));
  settings.group("launch", "What `atoll launch` can do when a rank is lost.", Scope::kIsland);
  settings.add("launch.replicate", &c.launch.replicate,
               "Each rank keeps a copy of the next one's share of the training state, so that the "
               "others can go on at once without it; costs that memory, and one transfer of the "
               "reduced gradients a step. Where ranks have parts of the model (parallel.*) each "
               "keeps its own state and another rank's of two steps, and the ranks start again "
               "from them: docs/layouts.md.");
  settings
      .add("launch.replicate_every", &c.launch.replicate_every,
           "Where ranks have parts of the model: steps from one copy to the next.", at_least(1))
      .checked("Only with launch.replicate and ranks that have parts of the model.", check_copies);
}

}  // namespace atl::train
