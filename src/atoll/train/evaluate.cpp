#include "atoll/train/evaluate.h"

#include <chrono>
#include <cmath>
#include <numbers>
#include <vector>

#include "atoll/data/evaluation.h"

namespace atl::train {

double Evaluation::perplexity() const {
  return std::exp(loss);
}

Evaluation evaluate(TrainState& state, Stream& stream, const data::TokenSource& source,
                    const Tokenizer& tokenizer, const EvaluateOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t context = state.options().context;
  data::EvaluationBatches batches(source,
                                  {.micro_batch = state.options().micro_batch,
                                   .context = context,
                                   .max_windows = (options.max_tokens + context - 1) / context,
                                   .packing = options.packing});
  std::vector<std::int64_t> token_bytes(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t id = 0; id < token_bytes.size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (tokenizer.is_special(token)) continue;  // stands for no byte of the text
    token_bytes[id] = static_cast<std::int64_t>(tokenizer.token_bytes(token).size());
  }

  Evaluation result;
  // Ranks take the batches in turn; all count the tokens of all.
  comm::Group* group = state.group();
  const std::int64_t ranks = group == nullptr ? 1 : group->size();
  const std::int64_t rank = group == nullptr ? 0 : group->rank();
  std::vector<double> sums(static_cast<std::size_t>(batches.num_batches()));
  std::int64_t number = 0;
  for (; number < batches.num_batches(); ++number) {
    if (number % ranks == 0 && options.stop && options.stop()) break;
    const std::optional<Batch> batch = batches.next();
    if (number % ranks == rank) {
      sums[static_cast<std::size_t>(number)] = state.runner().evaluate({.stream = &stream}, *batch);
    }
    const auto* targets = batch->targets.data<std::int32_t>();
    for (std::int64_t i = 0; i < batch->targets.num_elements(); ++i) {
      if (targets[i] == kIgnoreTarget) continue;
      ++result.tokens;
      result.bytes += token_bytes.at(static_cast<std::size_t>(targets[i]));
    }
  }
  if (const std::int64_t rest = number % ranks; rest > 0 && rest <= rank) {
    state.runner().idle({.stream = &stream}, /*training=*/false);
  }
  if (ranks > 1) {  // all but one of each are zero: the sum is exact
    group->all_reduce({sums.data(), {Dtype::kF64, {batches.num_batches()}}});
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  result.loss = sum / static_cast<double>(result.tokens);
  result.bits_per_byte = sum / std::numbers::ln2 / static_cast<double>(result.bytes);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  result.seconds = seconds.count();
  return result;
}

Evaluation combine(const std::vector<Evaluation>& parts) {
  Evaluation all;
  double bits = 0;
  for (const Evaluation& part : parts) {
    if (part.tokens == 0) continue;
    all.loss += part.loss * static_cast<double>(part.tokens);
    bits += part.bits_per_byte * static_cast<double>(part.bytes);
    all.tokens += part.tokens;
    all.bytes += part.bytes;
    all.seconds += part.seconds;
  }
  all.loss /= static_cast<double>(all.tokens);
  all.bits_per_byte = bits / static_cast<double>(all.bytes);
  return all;
}

}  // namespace atl::train
