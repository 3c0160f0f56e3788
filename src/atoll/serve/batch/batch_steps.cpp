// One step of a BatchGenerator: which tokens go through the model, and what becomes of its logits.

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/serve/batch/batch_generator.h"

namespace atl::serve {

std::vector<BatchGenerator::Part> BatchGenerator::plan_step() {
  std::vector<std::int64_t> pending;
  std::vector<bool> answers;
  for (const SequencePtr& sequence : running_) {
    pending.push_back(sequence->pending());
    answers.push_back(sequence->is_decoding());
  }
  const std::vector<std::int64_t> shares =
      step_shares(pending, answers, {room_.max_rows, options_.prompt_rows_beside_answers});
  std::int64_t spare = std::min(options_.rows_with_guesses, room_.max_rows) -
                       std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  std::vector<Part> parts;
  // What loses its memory is the last one always: none that is in `parts`.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (shares[i] == 0 || !make_room(sequence, sequence.computed + shares[i])) continue;
    const auto first = sequence.tokens.begin() + sequence.computed;
    Part part = {.sequence = &sequence,
                 .tokens = {first, first + shares[i]},
                 .wanted = wanted_of(sequence, shares[i])};
    if (answers[i] && spare > 0) {
      const std::vector<std::int32_t> guessed = guess(sequence, spare);
      part.num_guessed = guessed.size();
      part.tokens.insert(part.tokens.end(), guessed.begin(), guessed.end());
      if (!guessed.empty()) part.wanted = StepModel::Wanted::kAll;
      spare -= std::ssize(guessed);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<std::int32_t> BatchGenerator::guess(Sequence& sequence, std::int64_t rows) {
  if (changes_logits(sequence.request)) return {};
  // No more than are still wanted behind the next token, nor than there is memory for.
  const std::int64_t wanted = std::min(sequence.request.max_new_tokens - sequence.result.new_tokens,
                                       max_tokens_ - sequence.length()) -
                              1;
  const std::int64_t most = std::min(rows, wanted);
  if (most <= 0) return {};
  std::vector<std::int32_t> guessed =
      sequence.draft.guess(sequence.tokens, static_cast<std::size_t>(most));
  while (!guessed.empty() && StepModel::blocks_for(sequence.length() + std::ssize(guessed)) >
                                 std::ssize(sequence.blocks)) {
    const auto block = pool_.num_free() > 0 ? pool_.take() : std::nullopt;
    if (block)
      sequence.blocks.push_back(*block);
    else
      guessed.pop_back();
  }
  return guessed;
}

bool BatchGenerator::make_room(Sequence& sequence, std::int64_t length) {
  while (std::ssize(sequence.blocks) < StepModel::blocks_for(length)) {
    if (const auto block = pool_.take()) {
      sequence.blocks.push_back(*block);
      continue;
    }
    const bool is_last = running_.back().get() == &sequence;
    ATOLL_CHECK(!is_last || running_.size() > 1, "{} blocks do not hold {} positions",
                pool_.num_blocks(), length);
    preempt_last();
    if (is_last) return false;
  }
  return true;
}

void BatchGenerator::preempt_last() {
  SequencePtr sequence = std::move(running_.back());
  running_.pop_back();
  pool_.release(sequence->blocks);
  sequence->blocks.clear();
  sequence->computed = 0;
  sequence->named = 0;
  sequence->node = BlockPool::kRoot;
  sequence->prompt_results.clear();
  sequence->is_running = false;
  waiting_.push_front(std::move(sequence));
  const std::lock_guard lock(mutex_);
  ++stats_.preempted;
  --stats_.running;
}

StepModel::Wanted BatchGenerator::wanted_of(const Sequence& sequence, std::int64_t count) const {
  using Wanted = StepModel::Wanted;
  const bool reads_prompt = sequence.computed < sequence.prompt_length();
  if (reads_prompt && sequence.request.prompt_logprobs && !sequence.prompt_told) {
    return Wanted::kAll;
  }
  const bool is_whole = sequence.computed + count == sequence.length();
  return is_whole && sequence.request.max_new_tokens > 0 ? Wanted::kLast : Wanted::kNothing;
}

void BatchGenerator::compute(std::vector<Part>& parts) {
  std::vector<StepModel::Piece> pieces;
  for (Part& part : parts) {
    const Sequence& sequence = *part.sequence;
    const bool is_pooled =
        sequence.request.pooling != Pooling::kNone && sequence.computed < sequence.prompt_length();
    pieces.push_back({part.tokens, sequence.computed, sequence.blocks, part.wanted, is_pooled});
    part.chosen.resize(part.num_guessed + 1);
    part.errors.resize(part.num_guessed + 1);
    if (part.wanted == StepModel::Wanted::kAll) part.prompt.resize(part.tokens.size());
    part.prompt_errors.resize(part.prompt.size());
  }
  model_->step(
      pieces, [&](std::span<const StepModel::RowLogits> rows) { take_logits(parts, rows); },
      [&](std::size_t piece, std::span<const float> hidden) {
        take_hidden(*parts[piece].sequence, hidden);
      });
  {
    const std::lock_guard lock(mutex_);
    ++stats_.steps;
    count_blocks();
  }
  for (Part& part : parts) deliver(part);
}

void BatchGenerator::take_logits(std::vector<Part>& parts,
                                 std::span<const StepModel::RowLogits> rows) {
  model_->threads().run(std::ssize(rows), [&](std::int64_t i) {
    const StepModel::RowLogits& row = rows[static_cast<std::size_t>(i)];
    Part& part = parts[row.piece];
    try {
      take_row(part, row, rooms_[static_cast<std::size_t>(i)]);
    } catch (const std::exception& error) {
      const std::int64_t guessed = row.row + 1 - sure_rows(part);
      if (guessed >= 0) part.errors[static_cast<std::size_t>(guessed)] = error.what();
      if (guessed < 0) part.prompt_errors[static_cast<std::size_t>(row.row)] = error.what();
    }
  });
}

std::int64_t BatchGenerator::sure_rows(const Part& part) {
  return std::ssize(part.tokens) - static_cast<std::int64_t>(part.num_guessed);
}

std::string BatchGenerator::first_error(const Part& part) {
  for (const std::string& error : part.prompt_errors) {
    if (!error.empty()) return error;
  }
  return part.errors.front();
}

void BatchGenerator::take_row(Part& part, const StepModel::RowLogits& row, ChoiceRoom& room) const {
  const Sequence& sequence = *part.sequence;
  const GenerationRequest& request = sequence.request;
  const std::int64_t next = sequence.computed + row.row + 1;
  if (next < sequence.prompt_length()) {
    part.prompt[static_cast<std::size_t>(row.row)] = token_result(
        row.logits, sequence.tokens[static_cast<std::size_t>(next)], request.top_logprobs);
  }
  if (next >= sequence.length() && request.max_new_tokens > 0) {
    part.chosen[static_cast<std::size_t>(next - sequence.length())] =
        choose_token(sequence, row.logits, next, options_.vocab_size, room);
  }
}

// In double and in the order of the tokens, so that pieces make no difference.
void BatchGenerator::take_hidden(Sequence& sequence, std::span<const float> hidden) const {
  const auto width = static_cast<std::size_t>(model_->model().config.hidden_size);
  const auto given = static_cast<std::int64_t>(hidden.size() / width);
  const std::int64_t rows = std::min(given, sequence.prompt_length() - sequence.computed);
  if (sequence.computed == 0) sequence.hidden_sum.assign(width, 0);
  const float* row = hidden.data();
  for (std::int64_t i = 0; i < rows; ++i, row += width) {
    const bool only = sequence.request.pooling == Pooling::kLast;
    for (std::size_t c = 0; c < width; ++c) {
      sequence.hidden_sum[c] = (only ? 0 : sequence.hidden_sum[c]) + static_cast<double>(row[c]);
    }
  }
  if (sequence.computed + rows < sequence.prompt_length()) return;
  const bool is_mean = sequence.request.pooling == Pooling::kMean;
  const double count = is_mean ? static_cast<double>(sequence.prompt_length()) : 1;
  sequence.result.embedding.resize(width);
  for (std::size_t c = 0; c < width; ++c) {
    sequence.result.embedding[c] = static_cast<float>(sequence.hidden_sum[c] / count);
  }
}

void BatchGenerator::deliver(Part& part) {
  Sequence& sequence = *part.sequence;
  const GenerationRequest& request = sequence.request;
  if (const std::string error = first_error(part); !error.empty()) {
    sequence.result.error = error;
    return end(sequence, Finish::kFailed);
  }
  sequence.computed += sure_rows(part);
  name_blocks(sequence);
  for (TokenResult& result : part.prompt) {
    if (result.token >= 0) sequence.prompt_results.push_back(std::move(result));
  }
  const bool prompt_is_read = sequence.computed >= sequence.prompt_length();
  if (request.prompt_logprobs && prompt_is_read && !std::exchange(sequence.prompt_told, true)) {
    tell(sequence, [&] { sequence.listener->on_prompt(sequence.prompt_results); });
  }
  if (sequence.computed < sequence.length()) return;
  if (request.max_new_tokens == 0) return end(sequence, Finish::kLength);
  take_tokens(part);
}

void BatchGenerator::take_tokens(Part& part) {
  Sequence& sequence = *part.sequence;
  const std::span guessed = std::span(part.tokens).last(part.num_guessed);
  std::size_t right = 0;
  take_token(sequence, std::move(part.chosen[0]));
  // A token that was guessed right is what the row behind it was computed for.
  while (!sequence.ended && right < guessed.size() && sequence.tokens.back() == guessed[right]) {
    ++sequence.computed;
    ++right;
    if (!part.errors[right].empty()) {
      sequence.result.error = part.errors[right];
      end(sequence, Finish::kFailed);
    } else {
      take_token(sequence, std::move(part.chosen[right]));
    }
  }
  if (!sequence.ended) name_blocks(sequence);
  sequence.draft.learn(guessed.size(), right);
  const std::lock_guard lock(mutex_);
  stats_.guessed_tokens += std::ssize(guessed);
  stats_.right_guesses += static_cast<std::int64_t>(right);
}

void BatchGenerator::name_blocks(Sequence& sequence) {
  // What is pooled is read in whole each time, and its blocks would push out those of others.
  if (sequence.request.pooling != Pooling::kNone) return;
  constexpr auto kSize = static_cast<std::size_t>(StepModel::kBlockSize);
  const std::span<const std::int32_t> tokens(sequence.tokens);
  while ((sequence.named + 1) * StepModel::kBlockSize <= sequence.computed) {
    const auto i = static_cast<std::size_t>(sequence.named++);
    sequence.node = pool_.add(sequence.request.cache_key, sequence.node,
                              tokens.subspan(i * kSize, kSize), sequence.blocks[i]);
  }
}

void BatchGenerator::take_token(Sequence& sequence, TokenResult token) {
  const GenerationRequest& request = sequence.request;
  if (token.token < 0) return end(sequence, Finish::kStop);
  if (std::ranges::binary_search(request.stop_tokens, token.token)) {
    sequence.result.stop_token = token.token;
    return end(sequence, Finish::kStop);
  }
  if (request.constraint != nullptr &&
      !tell(sequence, [&] { request.constraint->accept(token.token); })) {
    sequence.result.error = "the form of the answer could not be followed";
    return end(sequence, Finish::kFailed);
  }
  sequence.tokens.push_back(token.token);
  ++sequence.in_prompt[token.token];
  ++sequence.result.new_tokens;
  bool goes_on = false;
  if (!tell(sequence, [&] { goes_on = sequence.listener->on_token(token); })) {
    sequence.result.error = "what reads the answer has failed";
    return end(sequence, Finish::kFailed);
  }
  if (!goes_on) return end(sequence, Finish::kStop);
  if (request.constraint != nullptr && request.constraint->is_over()) {
    return end(sequence, Finish::kStop);
  }
  if (sequence.result.new_tokens >= request.max_new_tokens || sequence.length() >= max_tokens_) {
    end(sequence, Finish::kLength);
  }
}

}  // namespace atl::serve
