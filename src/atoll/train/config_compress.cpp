#include "atoll/train/config_compress.h"

#include <array>
#include <cmath>

#include "atoll/base/error.h"

namespace atl::train {

namespace {

using parallel::Compression;

constexpr std::array<const char*, kNumCompressModes> kModes = {
    "int8", "int4", "powersgd", "onebit_adam", "zeroone_adam", "int4"};

constexpr const char* kNotBuilt = "that is not built yet: leave one of them out";
constexpr const char* kExact =
    "each rank rounds what it sends, so the number of ranks is part of the result: leave one out";
constexpr const char* kWholeMatrices =
    "its factors are of whole matrices, which every rank updates: set dp.zero=0";
constexpr const char* kOwnGradients =
    "it sums no gradients, and each rank makes the momentum of all its own: set dp.zero=0 or 1";
constexpr const char* kOwnMomentum =
    "between two exchanges each rank has a momentum of its own, which no other can have a part of: "
    "set dp.zero=0";
constexpr const char* kAdamOnly = "it sends AdamW's momentum: set optim.kind=adamw";
constexpr const char* kF32Only = "it updates parameters in f32: set train.dtype=f32";
constexpr const char* kNoGather =
    "every rank updates all values, so none are sent: set dp.zero=1 or 2";
constexpr const char* kNoCopy =
    "ranks keep no copy of values that a difference could be to: set dp.zero=2";
constexpr const char* kNoReplica =
    "a copy of a rank's share would be without what the rank owes: leave launch.replicate out, the "
    "run then goes on from its last checkpoint";
constexpr const char* kNoIslands =
    "that is not built yet: leave dp.compress out, outer.codec shortens what islands send";
constexpr const char* kPlanner =
    "the planner does not know what codes take: set the layout by hand";

// What goes together with what. A column for each CompressMode: int8, int4, powersgd, onebit_adam,
// zeroone_adam, and dp.compress_weights. What has no line here goes together with all of them:
// every comm.algorithm and backend, gradient accumulation, dp.balance, optim.clip, train.recompute,
// train.on_nonfinite, checkpoint.async, experts on one rank.
constexpr CompressRule kRules[] = {
    {"dp.zero",
     "0",
     [](const TrainConfig& c) { return c.dp.zero == 0; },
     {nullptr, nullptr, nullptr, nullptr, nullptr, kNoGather}},
    {"dp.zero",
     "1",
     [](const TrainConfig& c) { return c.dp.zero == 1; },
     {nullptr, nullptr, kWholeMatrices, nullptr, kOwnMomentum, nullptr}},
    {"dp.zero",
     "2",
     [](const TrainConfig& c) { return c.dp.zero == 2; },
     {nullptr, nullptr, kWholeMatrices, kOwnGradients, kOwnMomentum, nullptr}},
    {"dp.zero",
     "3",
     [](const TrainConfig& c) { return c.dp.zero == 3; },
     {nullptr, nullptr, kWholeMatrices, kOwnGradients, kOwnMomentum, kNoCopy}},
    {"optim.kind",
     "muon",
     [](const TrainConfig& c) { return c.optim.kind == "muon"; },
     {nullptr, nullptr, nullptr, kAdamOnly, kAdamOnly, nullptr}},
    {"optim.kind",
     "lion",
     [](const TrainConfig& c) { return c.optim.kind == "lion"; },
     {nullptr, nullptr, nullptr, kAdamOnly, kAdamOnly, nullptr}},
    {"optim.kind",
     "sgd",
     [](const TrainConfig& c) { return c.optim.kind == "sgd"; },
     {nullptr, nullptr, nullptr, kAdamOnly, kAdamOnly, nullptr}},
    {"train.dtype",
     "bf16",
     [](const TrainConfig& c) { return c.train.dtype == "bf16"; },
     {nullptr, nullptr, nullptr, kF32Only, kF32Only, kF32Only}},
    {"lora.rank",
     "4",
     [](const TrainConfig& c) { return c.lora.rank > 0; },
     {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr}},
    {"train.exact",
     "true",
     [](const TrainConfig& c) { return c.train.exact; },
     {kExact, kExact, kExact, kExact, kExact, kExact}},
    {"dp.shard",
     "2",
     [](const TrainConfig& c) { return c.dp.shard > 0; },
     {kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt}},
    {"parallel.tp",
     "2",
     [](const TrainConfig& c) { return c.parallel.tp > 1; },
     {kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt}},
    {"parallel.pp",
     "2",
     [](const TrainConfig& c) { return c.parallel.pp > 1; },
     {kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt}},
    {"parallel.cp",
     "2",
     [](const TrainConfig& c) { return c.parallel.cp > 1; },
     {kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt}},
    {"parallel.ep",
     "2",
     [](const TrainConfig& c) { return c.parallel.ep > 1; },
     {kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt}},
    {"parallel.layout",
     "auto",
     [](const TrainConfig& c) { return c.parallel.layout == "auto"; },
     {kPlanner, kPlanner, kPlanner, kPlanner, kPlanner, kPlanner}},
    {"island.coordinator",
     "localhost:1",
     [](const TrainConfig& c) { return !c.island.coordinator.empty(); },
     {kNoIslands, kNoIslands, kNoIslands, kNoIslands, kNoIslands, kNoIslands}},
    {"launch.replicate",
     "true",
     [](const TrainConfig& c) { return c.launch.replicate; },
     {kNoReplica, kNoReplica, kNoReplica, kNoReplica, kNoReplica, kNoReplica}},
    {"offload.optimizer",
     "file",
     [](const TrainConfig& c) { return c.offload.optimizer != "none"; },
     {kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt, kNotBuilt}},
};

std::string named(const Settings& settings, const char* key) {
  const Setting& setting = settings.find(key);
  return fmt::format("{} ({}, {})", key, to_toml(setting.value()), setting.origin);
}

Compression compression(const std::string& name) {
  if (name == "int8") return Compression::kInt8;
  if (name == "int4") return Compression::kInt4;
  if (name == "powersgd") return Compression::kPowerSgd;
  if (name == "onebit_adam") return Compression::kOneBitAdam;
  return name == "zeroone_adam" ? Compression::kZeroOneAdam : Compression::kNone;
}

bool has_mode(const TrainConfig& config, int mode) {
  if (mode == static_cast<int>(CompressMode::kWeights)) return config.dp.compress_weights != "none";
  return config.dp.compress == kModes[static_cast<std::size_t>(mode)];
}

}  // namespace

void add_compress(Settings& settings, DataParallelSettings& dp) {
  settings.add(
      "dp.compress", &dp.compress,
      "What ranks send of gradients: docs/compressed-data-parallel.md. int8, int4: codes of 8 or 4 "
      "bits, in blocks, to whoever sums them. powersgd: two factors of low rank of each matrix. "
      "onebit_adam: after dp.compress_warmup, a bit of AdamW's momentum instead. zeroone_adam: the "
      "same from the beginning, but for steps that update the second moment, and after "
      "dp.compress_warmup not in every step. Each rank keeps what it has not sent, and sends it "
      "later.",
      one_of({"none", "int8", "int4", "powersgd", "onebit_adam", "zeroone_adam"}));
  settings.add("dp.compress_weights", &dp.compress_weights,
               "dp.zero = 1 or 2: what ranks send of updated values. int4: codes of 4 bits of the "
               "difference to what the others hold.",
               one_of({"none", "int4"}));
  settings.add(
      "dp.compress_feedback", &dp.compress_feedback,
      "Send later what the codes did not say. false loses it: only to see what that costs.");
  settings.add("dp.compress_rank", &dp.compress_rank, "powersgd: the rank of the factors.",
               between(1, 1 << 10));
  settings.add("dp.compress_warmup", &dp.compress_warmup,
               "onebit_adam: the part of train.steps that is plain AdamW, after which the second "
               "moment stays as it is. zeroone_adam: the part after which it stays, and local "
               "steps begin.",
               between(0, 1));
  settings.add("dp.compress_local_steps", &dp.compress_local_steps,
               "zeroone_adam: the most steps from one exchange to the next. They begin with 2, and "
               "double whenever the learning rate halves.",
               between(1, 1 << 10));
  settings.add("dp.compress_owed", &dp.compress_owed,
               "A checkpoint of another dp.compress, and what its ranks still owed. keep: refuse "
               "it. fold: add that to the next step's gradient, or to AdamW's momentum what is "
               "owed of momenta, and go on owing nothing.",
               one_of({"keep", "fold"}));
  settings.known_elsewhere_as("dp.compress",
                              {"gradient_compression", "compression", "ddp_comm_hook", "onebit"});
  settings.known_elsewhere_as("dp.compress_rank", {"matrix_approximation_rank"});
  settings.known_elsewhere_as("dp.compress_local_steps", {"local_step_clipper"});
  settings.known_elsewhere_as("dp.compress_warmup", {"freeze_step", "var_freeze_step"});
}

std::span<const CompressRule> compress_rules() {
  return kRules;
}

bool is_compressed(const TrainConfig& config) {
  return config.dp.compress != "none" || config.dp.compress_weights != "none";
}

void validate_compress(const TrainConfig& config, const Settings& s) {
  for (int mode = 0; mode < kNumCompressModes; ++mode) {
    if (!has_mode(config, mode)) continue;
    const bool is_weights = mode == static_cast<int>(CompressMode::kWeights);
    for (const CompressRule& rule : kRules) {
      if (rule.reasons[mode] == nullptr || !rule.is_set(config)) continue;
      throw user_error("{} does not go together with {}: {}",
                       named(s, is_weights ? "dp.compress_weights" : "dp.compress"),
                       named(s, rule.setting), rule.reasons[mode]);
    }
  }
  const auto only_with = [&](const char* key, bool has, const char* meaning) {
    if (has || s.find(key).is_default()) return;
    throw user_error("{} is for {}, and {}; remove it", named(s, key), meaning,
                     named(s, "dp.compress"));
  };
  only_with("dp.compress_feedback",
            config.dp.compress == "int8" || config.dp.compress == "int4" ||
                config.dp.compress == "powersgd",
            "dp.compress int8, int4 and powersgd");
  only_with("dp.compress_rank", config.dp.compress == "powersgd", "dp.compress powersgd");
  only_with("dp.compress_warmup",
            config.dp.compress == "onebit_adam" || config.dp.compress == "zeroone_adam",
            "dp.compress onebit_adam and zeroone_adam");
  only_with("dp.compress_local_steps", config.dp.compress == "zeroone_adam",
            "dp.compress zeroone_adam");
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
