// preference.*: learning from answers that are compared.

#include "atoll/train/config/preference.h"

#include "atoll/base/error.h"
#include "atoll/nn/preference_head.h"
#include "atoll/train/config/groups.h"
#include "atoll/train/config/rules.h"

namespace atl::train {

namespace {

void check_pairs(const TrainConfig& config, const Settings& s) {
  const LoopSettings& train = config.train;
  if (!train.has_preferences()) return;
  if (train.micro_batch % 2 != 0) {
    throw user_error(
        "{} holds half a pair of sequences, and {} compares the two of a pair; e.g. "
        "--train.micro_batch={}",
        named(s, "train.micro_batch"), named(s, "train.objective"), train.micro_batch + 1);
  }
  if (train.context / config.parallel.cp < nn::kLeastPairContext) {
    throw user_error("{} is less than the {} positions of a rank that {} needs; make it larger",
                     named(s, "train.context"), nn::kLeastPairContext, named(s, "train.objective"));
  }
}

void check_smoothing(const TrainConfig& config, const Settings& s) {
  const PreferenceSettings& preference = config.preference;
  if (preference.loss == "sigmoid" || preference.loss == "robust") return;
  if (preference.label_smoothing == 0) return;
  throw user_error("{} goes with preference.loss sigmoid and robust, not with {}; leave it out",
                   named(s, "preference.label_smoothing"), named(s, "preference.loss"));
}

}  // namespace

void add_preference(SettingRegistry& settings, TrainConfig& c) {
  PreferenceSettings& p = c.preference;
  settings.group("preference",
                 "Learning from answers that are compared (train.objective): docs/preferences.md.");
  settings
      .add("preference.beta", &p.beta,
           "How much a difference of log-probabilities counts; of orpo, the weight of the odds "
           "ratio beside the loss of the chosen answer.",
           above(0))
      .fixed()
      .only_with("train.objective", Values({"dpo", "orpo", "kto"}));
  settings
      .add("preference.loss", &p.loss,
           "sigmoid: the logistic loss of DPO. robust: the same where preference.label_smoothing "
           "of the pairs are known to be swapped. ipo: squared distance to 1 / (2 beta), of "
           "log-probabilities a token. hinge: zero beyond a margin of 1 / beta.",
           one_of({"sigmoid", "robust", "ipo", "hinge"}))
      .fixed()
      .only_with("train.objective", Values({"dpo"}))
      .checked("", check_pairs);
  settings
      .add("preference.label_smoothing", &p.label_smoothing,
           "Part of the pairs whose answers are taken to be swapped.", from_below(0, 0.5))
      .fixed()
      .only_with("train.objective", Values({"dpo"}))
      .checked("With sigmoid and robust.", check_smoothing);
  settings
      .add("preference.reference_free", &p.reference_free,
           "Compares log-probabilities themselves, not with those of the model that the run began "
           "with.")
      .fixed()
      .only_with("train.objective", Values({"dpo"}));
  settings
      .add("preference.desirable_weight", &p.desirable_weight,
           "Weight of the loss of answers with the label true.", above(0))
      .fixed()
      .only_with("train.objective", Values({"kto"}));
  settings
      .add("preference.undesirable_weight", &p.undesirable_weight,
           "Weight of the loss of answers with the label false.", above(0))
      .fixed()
      .only_with("train.objective", Values({"kto"}));
}

nn::PreferenceOptions preference_options(const TrainConfig& config) {
  const PreferenceSettings& from = config.preference;
  nn::PreferenceOptions options = {.beta = from.beta,
                                   .label_smoothing = from.label_smoothing,
                                   .desirable_weight = from.desirable_weight,
                                   .undesirable_weight = from.undesirable_weight};
  if (from.loss == "robust") options.kind = nn::PreferenceKind::kRobust;
  if (from.loss == "ipo") options.kind = nn::PreferenceKind::kIpo;
  if (from.loss == "hinge") options.kind = nn::PreferenceKind::kHinge;
  if (config.train.objective == "orpo") options.kind = nn::PreferenceKind::kOrpo;
  if (config.train.objective == "kto") options.kind = nn::PreferenceKind::kKto;
  return options;
}

bool needs_reference(const TrainConfig& config) {
  return config.train.objective == "kto" ||
         (config.train.objective == "dpo" && !config.preference.reference_free);
}

data::PairKind pair_kind(const TrainConfig& config) {
  if (!config.train.has_preferences()) return data::PairKind::kNone;
  return config.train.objective == "kto" ? data::PairKind::kLabels : data::PairKind::kPreferences;
}

data::Packing packing_of(const TrainConfig& config) {
  if (config.train.has_preferences()) return data::Packing::kPairs;
  return data::parse_packing(config.data.packing, "data.packing");
}

}  // namespace atl::train
