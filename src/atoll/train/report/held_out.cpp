#include "atoll/train/report/held_out.h"

#include <limits>
#include <utility>

#include "atoll/train/config/preference.h"
#include "atoll/train/step/pair_evaluation.h"

namespace atl::train {

namespace {

// While this lives, the model's head gets the facts of other samples.
class OtherFacts {
 public:
  OtherFacts(nn::PreferenceSource& facts, const data::PairSamples& samples,
             const std::vector<double>& references)
      : facts_(facts), before_(std::exchange(facts.of, facts_of(samples, references))) {}
  ~OtherFacts() { facts_.of = std::move(before_); }
  OtherFacts(const OtherFacts&) = delete;
  OtherFacts& operator=(const OtherFacts&) = delete;

 private:
  nn::PreferenceSource& facts_;
  std::function<nn::SampleFacts(std::int64_t)> before_;
};

Evaluation evaluate_answers(const TrainConfig& config, const data::TokenSource& source,
                            const RunModel& model, const std::function<bool()>& stop) {
  const data::PairSamples pairs(source, 0, config.train.context,
                                data::PairSamples::Order::kAsInSource);
  const OtherFacts facts(model.facts(), pairs, model.references().held_out);
  const PairEvaluation found =
      evaluate_pairs(model.state(), model.stream(), pairs, config.eval.max_tokens, stop);
  return {.loss = found.sums.loss / found.sums.num_pairs,
          .bits_per_byte = std::numeric_limits<double>::quiet_NaN(),
          .tokens = found.tokens,
          .seconds = found.seconds,
          .preferences = found.sums};
}

}  // namespace

std::optional<HeldOut> evaluate_held_out(const TrainConfig& config, const PreparedCorpus& corpus,
                                         const RunModel& model, const std::function<bool()>& stop) {
  HeldOut result;
  for (const data::Corpus& one : corpus.corpora) {
    const data::TokenSplit& split = one.held_out();
    if (split.num_tokens() < 2) continue;
    result.parts.push_back(config.train.has_preferences()
                               ? evaluate_answers(config, split, model, stop)
                               : evaluate(model.state(), model.stream(), split, corpus.tokenizer,
                                          {.max_tokens = config.eval.max_tokens,
                                           .packing = packing_of(config),
                                           .stop = stop}));
    result.names.push_back(split.name());
    if (stop()) return std::nullopt;
  }
  result.whole = combine(result.parts);
  return result;
}

}  // namespace atl::train
