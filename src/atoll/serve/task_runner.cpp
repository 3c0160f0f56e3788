#include "atoll/serve/task_runner.h"

#include <algorithm>
#include <span>
#include <utility>

#include "atoll/base/check.h"

namespace atl::serve {

TaskRunner::TaskRunner(InferenceEngine& engine, const Tokenizer& tokenizer,
                       const AnswerOptions& options)
    : engine_(engine), tokenizer_(tokenizer), options_(options) {
  options.validate();
  engine_.reset();
}

// Forgets what the cache has beyond a beginning shared with `tokens` that is cut where the engine's
// largest pieces are, so that the rest is computed as if all were; returns its length, less than
// all.
std::size_t TaskRunner::keep_shared(const std::vector<std::int32_t>& tokens) {
  constexpr auto kPiece = static_cast<std::size_t>(InferenceEngine::kPieces.front());
  const auto shared = static_cast<std::size_t>(
      std::mismatch(prefix_.begin(), prefix_.end(), tokens.begin(), tokens.end()).first -
      prefix_.begin());
  const std::size_t kept = std::min(shared, tokens.size() - 1) / kPiece * kPiece;
  engine_.truncate(static_cast<std::int64_t>(kept));
  prefix_.resize(kept);
  return kept;
}

std::optional<ChoiceScores> TaskRunner::score(const TaskItem& item, const EncodedItem& encoded) {
  ATOLL_CHECK(item.choices.size() == encoded.continuations.size() && !encoded.context.empty());
  // The context's last token goes with each choice: what follows it is the choice's first token.
  const std::vector<std::int32_t> before(encoded.context.begin(), encoded.context.end() - 1);
  if (before.empty()) {
    engine_.reset();
    prefix_.clear();
  } else {
    const std::size_t kept = keep_shared(before);
    engine_.append(std::span(before).subspan(kept));
    prefix_ = before;
  }
  std::vector<double> log_likelihoods;
  for (const std::vector<std::int32_t>& continuation : encoded.continuations) {
    if (interrupted()) return std::nullopt;
    engine_.truncate(static_cast<std::int64_t>(before.size()));
    std::vector<std::int32_t> tokens = {encoded.context.back()};
    tokens.insert(tokens.end(), continuation.begin(), continuation.end());
    double sum = 0;
    for (const double log_probability : engine_.score(tokens)) sum += log_probability;
    log_likelihoods.push_back(sum);
  }
  return choice_scores(item, std::move(log_likelihoods));
}

std::optional<GeneratedAnswer> TaskRunner::generate(const TaskItem& item,
                                                    const EncodedItem& encoded) {
  ATOLL_CHECK(!item.answers.empty() && !encoded.context.empty());
  AnswerText text(tokenizer_, options_.stops_of(encoded));
  TokenSampler greedy({.temperature = 0});
  AnswerEnd end = AnswerEnd::kMaxNewTokens;
  bool cut = false;
  const std::size_t kept = keep_shared(encoded.context);
  const auto on_token = [&](std::int32_t token) {
    if (interrupted()) {
      cut = true;
    } else if (std::binary_search(options_.stop_tokens.begin(), options_.stop_tokens.end(),
                                  token)) {
      end = AnswerEnd::kStopToken;
    } else if (!text.push(token)) {
      end = AnswerEnd::kStopText;
    } else {
      return true;
    }
    return false;
  };
  engine_.generate(std::span(encoded.context).subspan(kept), options_.max_new_tokens, greedy, -1,
                   on_token);
  prefix_ = encoded.context;
  if (cut) return std::nullopt;
  return text.finish(end, item, options_.extract);
}

std::optional<TaskAnswer> TaskRunner::answer(const TaskItem& item, const EncodedItem& encoded) {
  TaskAnswer answer;
  if (item.is_multiple_choice()) {
    answer.scores = score(item, encoded);
  } else {
    answer.generated = generate(item, encoded);
  }
  if (!answer.scores && !answer.generated) return std::nullopt;
  return answer;
}

}  // namespace atl::serve
