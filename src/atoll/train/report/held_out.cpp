#include "atoll/train/report/held_out.h"

namespace atl::train {

std::optional<HeldOut> evaluate_held_out(const TrainConfig& config, const PreparedCorpus& corpus,
                                         const RunModel& model, const std::function<bool()>& stop) {
  HeldOut result;
  for (const data::Corpus& one : corpus.corpora) {
    if (one.held_out().num_tokens() < 2) continue;
    result.parts.push_back(
        evaluate(model.state(), model.stream(), one.held_out(), corpus.tokenizer,
                 {.max_tokens = config.eval.max_tokens,
                  .packing = data::parse_packing(config.data.packing, "data.packing"),
                  .stop = stop}));
    result.names.push_back(one.held_out().name());
    if (stop()) return std::nullopt;
  }
  result.whole = combine(result.parts);
  return result;
}

}  // namespace atl::train
