#include "atoll/train/config/compress.h"

#include <cmath>

#include "atoll/base/error.h"
#include "atoll/train/config/rules.h"

namespace atl::train {

namespace {

using parallel::Compression;

constexpr const char* kNotBuilt = "that is not built yet";

// What neither kind of compression goes together with. Whatever is not named here or in
// add_compress goes together with all of them: every comm.algorithm and backend, gradient
// accumulation, dp.balance, optim.clip, train.recompute, train.on_nonfinite, checkpoint.async,
// experts on one rank.
void refuse_beside_compression(Registered setting) {
  setting
      .not_beside("train.exact",
                  "each rank rounds what it sends, so the number of ranks is part of the result")
      .not_beside("dp.shard", kNotBuilt)
      .not_beside("parallel.tp", kNotBuilt)
      .not_beside("parallel.pp", kNotBuilt)
      .not_beside("parallel.cp", kNotBuilt)
      .not_beside("parallel.ep", kNotBuilt)
      .not_beside("offload.optimizer", kNotBuilt)
      .not_beside("parallel.layout", "auto", "the planner does not know what codes take")
      .not_beside("island.coordinator",
                  "that is not built yet, and outer.codec shortens what islands send")
      .not_beside("launch.replicate",
                  "a copy of a rank's share would be without its residual; the run goes on "
                  "from its last checkpoint instead");
}

Compression compression(const std::string& name) {
  if (name == "int8") return Compression::kInt8;
  if (name == "int4") return Compression::kInt4;
  if (name == "powersgd") return Compression::kPowerSgd;
  if (name == "onebit_adam") return Compression::kOneBitAdam;
  return name == "zeroone_adam" ? Compression::kZeroOneAdam : Compression::kNone;
}

}  // namespace

void add_compress(SettingRegistry& settings, DataParallelSettings& dp) {
  refuse_beside_compression(
      settings
          .add("dp.compress", &dp.compress,
               "What ranks send of gradients: docs/compressed-data-parallel.md. int8, int4: codes "
               "of 8 or 4 bits, in blocks, to whoever sums them. powersgd: two factors of low rank "
               "of each matrix. onebit_adam: after dp.compress_warmup, a bit of AdamW's momentum "
               "instead. zeroone_adam: the same from the beginning, but for steps that update the "
               "second moment, and after dp.compress_warmup not in every step. Each rank keeps "
               "what it has not sent, and sends it later.",
               one_of({"none", "int8", "int4", "powersgd", "onebit_adam", "zeroone_adam"}))
          .when("powersgd")
          .not_beside("dp.zero", "its factors are of whole matrices, which every rank updates")
          .when("onebit_adam")
          .not_beside("dp.zero", {"2", "3"},
                      "it sums no gradients, and each rank makes the momentum of all its own")
          .when("zeroone_adam")
          .not_beside("dp.zero",
                      "between two exchanges each rank has a momentum of its own, which no other "
                      "can have a part of")
          .when({"onebit_adam", "zeroone_adam"})
          .needs("optim.kind", "adamw", "it sends AdamW's momentum")
          .needs("train.dtype", "f32", "it updates parameters in f32")
          .when({}));
  refuse_beside_compression(
      settings
          .add("dp.compress_weights", &dp.compress_weights,
               "dp.zero = 1 or 2: what ranks send of updated values. int4: codes of 4 bits of the "
               "difference to what the others hold.",
               one_of({"none", "int4"}))
          .needs("dp.zero", {"1", "2"},
                 "with 0 every rank updates all values, so none are sent; with 3 ranks keep no "
                 "copy that a difference could be to")
          .needs("train.dtype", "f32", "it updates parameters in f32"));
  settings
      .add("dp.compress_feedback", &dp.compress_feedback,
           "Send later what the codes did not say. false loses it: only to see what that costs.")
      .only_with("dp.compress", {"int8", "int4", "powersgd"});
  settings
      .add("dp.compress_rank", &dp.compress_rank, "The rank of the factors.", between(1, 1 << 10))
      .only_with("dp.compress", "powersgd");
  settings
      .add("dp.compress_warmup", &dp.compress_warmup,
           "onebit_adam: the part of train.steps that is plain AdamW, after which the second "
           "moment stays as it is. zeroone_adam: the part after which it stays, and local steps "
           "begin.",
           between(0, 1))
      .only_with("dp.compress", {"onebit_adam", "zeroone_adam"});
  settings
      .add("dp.compress_local_steps", &dp.compress_local_steps,
           "The most steps from one exchange to the next. They begin with 2, and double whenever "
           "the learning rate halves.",
           between(1, 1 << 10))
      .only_with("dp.compress", "zeroone_adam");
  settings.add("dp.compress_owed", &dp.compress_owed,
               "A checkpoint of another dp.compress has a residual: what its ranks have not sent "
               "yet. keep: refuse "
               "it. fold: add it to the next step's gradient, or to AdamW's momentum where "
               "it is of momenta, and begin without a residual.",
               one_of({"keep", "fold"}));
  settings.known_elsewhere_as("dp.compress",
                              {"gradient_compression", "compression", "ddp_comm_hook", "onebit"});
  settings.known_elsewhere_as("dp.compress_rank", {"matrix_approximation_rank"});
  settings.known_elsewhere_as("dp.compress_local_steps", {"local_step_clipper"});
  settings.known_elsewhere_as("dp.compress_warmup", {"freeze_step", "var_freeze_step"});
}

bool is_compressed(const TrainConfig& config) {
  return config.dp.compress != "none" || config.dp.compress_weights != "none";
}

parallel::CompressionOptions compression_options(const TrainConfig& config, int num_ranks) {
  if (!is_compressed(config)) return {};
  if (num_ranks == 1) {
    throw user_error(
        "{} = {} shortens what ranks send each other, and there is one rank; start more with -n, "
        "or leave it out",
        config.dp.compress != "none" ? "dp.compress" : "dp.compress_weights",
        config.dp.compress != "none" ? config.dp.compress : config.dp.compress_weights);
  }
  return {
      .gradients = compression(config.dp.compress),
      .feedback = config.dp.compress_feedback,
      .weight_differences = config.dp.compress_weights != "none",
      .rank = static_cast<int>(config.dp.compress_rank),
      .warmup = std::llround(config.dp.compress_warmup * static_cast<double>(config.train.steps)),
      .local_steps = config.dp.compress_local_steps,
      .last_step = config.train.steps};
}

}  // namespace atl::train
