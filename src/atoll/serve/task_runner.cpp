#include "atoll/serve/task_runner.h"

#include <algorithm>
#include <span>

#include "atoll/base/check.h"
#include "atoll/text/stream_decoder.h"
#include "atoll/text/utf8.h"

namespace atl::serve {

namespace {

std::size_t first_largest(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

// An answer as it grows, up to the first stop that appears in it. A stop may begin in one token and
// end in another.
class StoppedText {
 public:
  explicit StoppedText(const std::vector<std::string>& stops) : stops_(stops) {
    for (const std::string& stop : stops) longest_ = std::max(longest_, stop.size());
  }

  // False when the text has met a stop, and is cut there.
  bool append(std::string_view piece) {
    const std::size_t from = text_.size() - std::min(text_.size(), longest_);
    text_ += piece;
    std::size_t end = std::string::npos;
    for (const std::string& stop : stops_) end = std::min(end, text_.find(stop, from));
    if (end == std::string::npos) return true;
    text_.resize(end);
    return false;
  }

  std::string take() { return std::move(text_); }

 private:
  const std::vector<std::string>& stops_;
  std::size_t longest_ = 0;
  std::string text_;
};

}  // namespace

void AnswerOptions::validate() const {
  if (!stops) return;
  for (const std::string& stop : *stops) {
    if (stop.empty()) throw user_error("--stop is empty, and would end every answer at once");
    if (text::valid_utf8_prefix(stop) != stop.size()) throw user_error("--stop is not UTF-8");
  }
}

std::size_t scored_characters(std::string_view choice) {
  const std::size_t begin = text::leading_white_space(choice);
  const std::string_view counted = begin == choice.size() ? choice : choice.substr(begin);
  constexpr unsigned char kMask = 0xC0, kContinuation = 0x80;
  return static_cast<std::size_t>(std::count_if(counted.begin(), counted.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & kMask) != kContinuation;
  }));
}

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
  ChoiceScores scores;
  for (std::size_t i = 0; i < item.choices.size(); ++i) {
    if (interrupted()) return std::nullopt;
    engine_.truncate(static_cast<std::int64_t>(before.size()));
    std::vector<std::int32_t> tokens = {encoded.context.back()};
    tokens.insert(tokens.end(), encoded.continuations[i].begin(), encoded.continuations[i].end());
    double sum = 0;
    for (const double log_probability : engine_.score(tokens)) sum += log_probability;
    scores.log_likelihoods.push_back(sum);
    scores.per_character.push_back(sum / static_cast<double>(scored_characters(item.choices[i])));
  }
  scores.best = first_largest(scores.log_likelihoods);
  scores.best_per_character = first_largest(scores.per_character);
  return scores;
}

std::optional<GeneratedAnswer> TaskRunner::generate(const TaskItem& item,
                                                    const EncodedItem& encoded) {
  ATOLL_CHECK(!item.answers.empty() && !encoded.context.empty());
  static const std::vector<std::string> kNothing;
  static const std::vector<std::string> kNewline = {"\n"};
  StoppedText text(options_.stops ? *options_.stops : encoded.is_chat ? kNothing : kNewline);
  StreamDecoder decoder(tokenizer_, {.skip_special = true});
  TokenSampler greedy({.temperature = 0});
  GeneratedAnswer answer;
  bool cut = false;
  const std::size_t kept = keep_shared(encoded.context);
  const auto on_token = [&](std::int32_t token) {
    if (interrupted()) {
      cut = true;
    } else if (std::binary_search(options_.stop_tokens.begin(), options_.stop_tokens.end(),
                                  token)) {
      answer.end = AnswerEnd::kStopToken;
    } else if (!text.append(decoder.push(token))) {
      answer.end = AnswerEnd::kStopText;
    } else {
      return true;
    }
    return false;
  };
  engine_.generate(std::span(encoded.context).subspan(kept), options_.max_new_tokens, greedy, -1,
                   on_token);
  prefix_ = encoded.context;
  if (cut) return std::nullopt;
  if (answer.end != AnswerEnd::kStopText) text.append(decoder.finish());
  answer.output = text.take();
  if (const auto found = comparable(answer.output, options_.extract)) answer.found = *found;
  answer.correct = matches(item, answer.found);
  return answer;
}

bool TaskRunner::matches(const TaskItem& item, const std::optional<std::string>& found) const {
  return found && std::any_of(item.answers.begin(), item.answers.end(), [&](const auto& answer) {
           return comparable(answer, options_.extract) == *found;
         });
}

void check_answers(const std::vector<TaskItem>& items, const AnswerPattern& pattern,
                   const std::string& path) {
  for (const TaskItem& item : items) {
    for (const std::string& answer : item.answers) {
      const auto found = comparable(answer, &pattern);
      if (found && !found->empty()) continue;
      throw user_error("{} line {}: the pattern to extract finds nothing in its answer", path,
                       item.line);
    }
  }
}

}  // namespace atl::serve
