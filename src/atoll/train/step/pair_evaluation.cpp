#include "atoll/train/step/pair_evaluation.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "atoll/train/step/step_exchange.h"

namespace atl::train {

namespace {

// Pairs in their order, a micro-batch at a time; the last one may lack rows.
class PairBatches {
 public:
  PairBatches(const data::PairSamples& pairs, std::int64_t micro_batch)
      : pairs_(pairs), micro_batch_(micro_batch) {
    tokens_.resize(static_cast<std::size_t>(micro_batch * pairs.context()));
    targets_.resize(tokens_.size());
  }

  std::int64_t size() const { return (pairs_.samples_in(0) + micro_batch_ - 1) / micro_batch_; }
  /// Valid until the next call.
  Batch get(std::int64_t number) {
    const std::int64_t first = number * micro_batch_;
    std::fill(tokens_.begin(), tokens_.end(), 0);
    std::fill(targets_.begin(), targets_.end(), kIgnoreTarget);
    const auto T = static_cast<std::size_t>(pairs_.context());
    for (std::int64_t i = 0; i < micro_batch_ && first + i < pairs_.samples_in(0); ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * T;
      pairs_.fill(first + i,
                  {std::span(tokens_).subspan(at, T), std::span(targets_).subspan(at, T), {}},
                  scratch_);
    }
    const Spec spec = {Dtype::kI32, {micro_batch_, pairs_.context()}};
    return {.tokens = {tokens_.data(), spec},
            .targets = {targets_.data(), spec},
            .first_sample = first};
  }
  /// Of the last batch that get() gave.
  std::int64_t num_targets() const {
    return std::count_if(targets_.begin(), targets_.end(),
                         [](std::int32_t target) { return target != kIgnoreTarget; });
  }

 private:
  const data::PairSamples& pairs_;
  std::int64_t micro_batch_;
  data::RowScratch scratch_;
  std::vector<std::int32_t> tokens_, targets_;  // (B, T)
};

// Ranks take the batches in turn. `next` gives the batch of a number, on all ranks, or ends it;
// `take` gets what this rank's passes have made.
void evaluate_in_turn(TrainState& state, Stream& stream,
                      const std::function<std::optional<Batch>(std::int64_t number)>& next,
                      const std::function<void(std::int64_t number, const Tensor& y)>& take) {
  const std::int64_t ranks = state.num_data_ranks();
  const std::int64_t rank = state.data_rank();
  std::int64_t number = 0;
  std::optional<Batch> last;
  for (; std::optional<Batch> batch = next(number); ++number) {
    last = batch;
    if (number % ranks != rank) continue;
    state.runner().evaluate({.stream = &stream}, state.own_part(*batch));
    if (state.runner().has_losses()) take(number, state.runner().losses());
  }
  const std::int64_t rest = number % ranks;
  if (rest == 0 || rest > rank) return;
  // Those that share experts with a rank that has a batch take part, and nobody counts what.
  const std::int64_t first = rank - state.options().build.expert_rank;
  if (first < rest)
    state.runner().evaluate({.stream = &stream}, state.own_part(*last));
  else
    state.runner().idle({.stream = &stream}, /*training=*/false);
}

}  // namespace

std::function<nn::SampleFacts(std::int64_t)> facts_of(const data::PairSamples& samples,
                                                      const std::vector<double>& references) {
  return [&samples, &references](std::int64_t sample) {
    const std::int64_t document = samples.document_of(sample);
    return nn::SampleFacts{
        .reference = references.empty() ? 0 : references.at(static_cast<std::size_t>(document)),
        .is_desirable = samples.is_marked(document)};
  };
}

std::vector<double> score_answers(TrainState& state, Stream& stream,
                                  const data::PairSamples& pairs) {
  std::vector<double> scores(static_cast<std::size_t>(pairs.num_documents()));
  const std::int64_t rows = state.options().micro_batch;
  PairBatches batches(pairs, rows);
  evaluate_in_turn(
      state, stream,
      [&](std::int64_t number) {
        return number < batches.size() ? std::optional(batches.get(number)) : std::nullopt;
      },
      [&](std::int64_t number, const Tensor& y) {
        const std::vector<double> losses = nn::sums_of_rows(y);
        for (std::int64_t i = 0; i < rows; ++i) {
          const std::int64_t sample = number * rows + i;
          if (sample >= pairs.samples_in(0)) break;
          scores[static_cast<std::size_t>(pairs.document_of(sample))] =
              -losses[static_cast<std::size_t>(i)];
        }
      });
  state.exchange().sum(scores);
  return scores;
}

PairEvaluation evaluate_pairs(TrainState& state, Stream& stream, const data::PairSamples& pairs,
                              std::int64_t max_tokens, const std::function<bool()>& stop) {
  const auto start = std::chrono::steady_clock::now();
  PairEvaluation result;
  PairBatches batches(pairs, state.options().micro_batch);
  const std::int64_t ranks = state.num_data_ranks();
  constexpr std::size_t kCount = nn::PreferenceSums::kCount;
  std::vector<double> all(static_cast<std::size_t>(batches.size()) * kCount);
  evaluate_in_turn(
      state, stream,
      [&](std::int64_t number) -> std::optional<Batch> {
        const bool is_enough = max_tokens > 0 && result.tokens >= max_tokens;
        if (number >= batches.size() || is_enough) return std::nullopt;
        if (number % ranks == 0 && stop && stop()) return std::nullopt;
        const Batch batch = batches.get(number);
        result.tokens += batches.num_targets();
        return batch;
      },
      [&](std::int64_t number, const Tensor& y) {
        const nn::PreferenceSums::Numbers numbers = nn::sums_of_pairs(y).numbers();
        std::copy(numbers.begin(), numbers.end(),
                  all.begin() + number * static_cast<std::int64_t>(kCount));
      });
  state.exchange().sum(all);
  for (std::size_t at = 0; at < all.size(); at += kCount) {
    result.sums += nn::PreferenceSums::of(std::span(all).subspan(at, kCount));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  result.seconds = seconds.count();
  return result;
}

}  // namespace atl::train
