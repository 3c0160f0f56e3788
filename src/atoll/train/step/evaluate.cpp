#include "atoll/train/step/evaluate.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/data/evaluation.h"
#include "atoll/tensor/host_access.h"
#include "atoll/train/step/step_exchange.h"
#include "atoll/train/step/step_passes.h"

namespace atl::train {

namespace {

double per_byte(double bits, std::int64_t bytes) {
  return bytes > 0 ? bits / static_cast<double>(bytes) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

double Evaluation::perplexity() const {
  return std::exp(loss);
}

Evaluation evaluate(TrainState& state, Stream& stream, const data::TokenSource& source,
                    const Tokenizer& tokenizer, const EvaluateOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t context = state.options().context;
  data::EvaluationBatches batches(source, {.micro_batch = state.options().micro_batch,
                                           .context = context,
                                           .max_targets = options.max_tokens,
                                           .packing = options.packing});
  std::vector<std::int64_t> token_bytes(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t id = 0; id < token_bytes.size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (tokenizer.is_special(token)) continue;  // stands for no byte of the text
    token_bytes[id] = static_cast<std::int64_t>(tokenizer.token_bytes(token).size());
  }

  Evaluation result;
  // Ranks take the batches in turn; all count the tokens of all.
  const std::int64_t ranks = state.num_data_ranks();
  const std::int64_t rank = state.data_rank();
  std::vector<double> sums(static_cast<std::size_t>(batches.num_batches()));
  std::int64_t number = 0;
  std::optional<Batch> batch;
  for (; number < batches.num_batches(); ++number) {
    if (number % ranks == 0 && options.stop && options.stop()) break;
    batch = batches.next();
    if (number % ranks == rank) {
      sums[static_cast<std::size_t>(number)] =
          state.runner().evaluate({.stream = &stream}, state.own_part(*batch));
    }
    const HostRead targets(batch->targets);
    for (const std::int32_t target : targets.elements<std::int32_t>()) {
      if (target == kIgnoreTarget) continue;
      ++result.tokens;
      result.bytes += token_bytes.at(static_cast<std::size_t>(target));
    }
  }
  if (const std::int64_t rest = number % ranks; rest > 0 && rest <= rank) {
    // Those that share experts with a rank that has a batch take part, and nobody counts what.
    const std::int64_t first = rank - state.options().build.expert_rank;
    if (first < rest)
      state.runner().evaluate({.stream = &stream}, state.own_part(*batch));
    else
      state.runner().idle({.stream = &stream}, /*training=*/false);
  }
  state.exchange().sum(sums);
  double sum = 0;
  for (const double part : sums) sum += part;
  result.loss = sum / static_cast<double>(result.tokens);
  result.bits_per_byte = per_byte(sum / std::numbers::ln2, result.bytes);
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
    bits += part.loss * static_cast<double>(part.tokens) / std::numbers::ln2;
    all.tokens += part.tokens;
    all.bytes += part.bytes;
    all.seconds += part.seconds;
    if (part.preferences) {
      if (!all.preferences) all.preferences.emplace();
      *all.preferences += *part.preferences;
    }
  }
  all.loss /= static_cast<double>(all.tokens);
  if (all.preferences) all.loss = all.preferences->loss / all.preferences->num_pairs;
  all.bits_per_byte = per_byte(bits, all.bytes);
  return all;
}

}  // namespace atl::train
