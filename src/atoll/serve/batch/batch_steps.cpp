// One step of a BatchGenerator: which tokens go through the model, and what becomes of its logits.

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/serve/batch/batch_generator.h"

namespace atl::serve {

void BatchGenerator::begin_steps() {
  while (std::ssize(steps_) < executor_->depth()) {
    std::vector<Part> parts = plan_step();
    if (parts.empty()) return;
    StepOrder order = {.epoch = epoch_, .number = next_step_++};
    for (Part& part : parts) {
      part.sequence->in_step = true;
      part.sequence->last_step = order.number;
      order.pieces.push_back(part.piece);
    }
    steps_.emplace(order.number, std::move(parts));
    executor_->begin(order);
    is_idle_ = false;
  }
}

std::vector<Sequence*> BatchGenerator::next_sequences() {
  std::vector<Sequence*> next;
  for (const SequencePtr& sequence : running_) {
    if (!sequence->in_step) next.push_back(sequence.get());
  }
  const std::int64_t depth = executor_->depth();
  const auto share = static_cast<std::size_t>((std::ssize(running_) + depth - 1) / depth);
  if (next.size() <= share) return next;
  // Those that have waited longest; of these, the earlier ones first.
  std::ranges::stable_sort(next, {}, &Sequence::last_step);
  next.resize(share);
  return next;
}

std::vector<BatchGenerator::Part> BatchGenerator::plan_step() {
  const std::vector<Sequence*> next = next_sequences();
  std::vector<std::int64_t> pending;
  std::vector<bool> answers;
  for (const Sequence* sequence : next) {
    pending.push_back(sequence->pending_in_step());
    answers.push_back(sequence->is_decoding());
  }
  const std::vector<std::int64_t> shares =
      step_shares(pending, answers, {room_.max_rows, options_.prompt_rows_beside_answers});
  std::int64_t spare = std::min(options_.rows_with_guesses, room_.max_rows) -
                       std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  std::vector<Part> parts;
  for (std::size_t i = 0; i < next.size(); ++i) {
    Sequence& sequence = *next[i];
    if (shares[i] == 0 || !sequence.is_running) continue;
    if (!make_room(sequence, sequence.computed + shares[i])) continue;
    Part part = plan_part(sequence, shares[i]);
    if (answers[i] && spare > 0) add_guesses(part, spare);
    spare -= static_cast<std::int64_t>(part.num_guessed);
    sequence.in_step = true;  // its memory is not taken for others of this step
    parts.push_back(std::move(part));
  }
  // Rows of one adapter beside each other, so that its products take them together.
  std::ranges::stable_sort(parts, {}, [](const Part& part) {
    return part.piece.adapter == nullptr ? 0 : part.piece.adapter->number;
  });
  return parts;
}

BatchGenerator::Part BatchGenerator::plan_part(Sequence& sequence, std::int64_t count) const {
  const GenerationRequest& request = sequence.request;
  const auto first = sequence.tokens.begin() + sequence.computed;
  Part part = {.sequence = &sequence};
  StepPiece& piece = part.piece;
  piece.tokens = {first, first + count};
  piece.first_position = sequence.computed;
  piece.blocks = sequence.blocks;
  piece.wanted = wanted_of(sequence, count);
  const bool reads_prompt = sequence.computed < sequence.prompt_length();
  piece.wants_hidden = request.pooling != Pooling::kNone && reads_prompt;
  piece.adapter = sequence.adapter.get();
  piece.choice = {&request, &sequence.sampler, &sequence.in_prompt};
  const bool is_whole = sequence.computed + count == sequence.length();
  if (is_whole && request.max_new_tokens > 0) piece.first_drawn = count - 1;
  if (piece.wanted == StepModel::Wanted::kAll) {
    const std::int64_t end = std::min(sequence.computed + count + 1, sequence.prompt_length());
    piece.targets.assign(first + 1, sequence.tokens.begin() + end);
  }
  return part;
}

void BatchGenerator::add_guesses(Part& part, std::int64_t rows) {
  const std::vector<std::int32_t> guessed = guess(*part.sequence, rows);
  if (guessed.empty()) return;
  part.num_guessed = guessed.size();
  part.piece.tokens.insert(part.piece.tokens.end(), guessed.begin(), guessed.end());
  part.piece.blocks = part.sequence->blocks;
  part.piece.wanted = StepModel::Wanted::kAll;
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
    if (running_.back()->in_step) return false;  // there is more when that step is done
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
  forget_memory(*sequence);
  waiting_.push_front(std::move(sequence));
  const std::lock_guard lock(mutex_);
  ++stats_.preempted;
  --stats_.running;
}

void BatchGenerator::forget_memory(Sequence& sequence) {
  pool_.release(sequence.blocks);
  sequence.blocks.clear();
  sequence.computed = 0;
  sequence.named = 0;
  sequence.node = BlockPool::kRoot;
  sequence.prompt_results.clear();
  sequence.is_running = false;
}

StepModel::Wanted BatchGenerator::wanted_of(const Sequence& sequence, std::int64_t count) const {
  using Wanted = StepModel::Wanted;
  const bool reads_prompt = sequence.computed < sequence.prompt_length();
  if (reads_prompt && sequence.request.prompt_logprobs && !sequence.prompt_told &&
      sequence.computed >= sequence.request.first_prompt_logprob - 1) {
    return Wanted::kAll;
  }
  const bool is_whole = sequence.computed + count == sequence.length();
  return is_whole && sequence.request.max_new_tokens > 0 ? Wanted::kLast : Wanted::kNothing;
}

void BatchGenerator::collect_steps() {
  while (std::optional<StepResult> result = executor_->take()) {
    is_idle_ = false;
    take_result(std::move(*result));
  }
}

void BatchGenerator::take_result(StepResult result) {
  const auto at = steps_.find(result.number);
  if (at == steps_.end()) return;  // its requests have ended, or are computed again
  std::vector<Part> parts = std::move(at->second);
  steps_.erase(at);
  {
    const std::lock_guard lock(mutex_);
    ++stats_.steps;
    count_blocks();
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Sequence& sequence = *parts[i].sequence;
    sequence.in_step = false;
    if (sequence.is_cancelled) {
      end(sequence, Finish::kCancelled);
    } else if (!result.error.empty()) {
      sequence.result.error = result.error;
      end(sequence, Finish::kFailed);
    } else {
      parts[i].result = std::move(result.pieces[i]);
      if (parts[i].piece.wants_hidden) take_hidden(sequence, parts[i].result.hidden);
      deliver(parts[i]);
    }
  }
}

std::int64_t BatchGenerator::sure_rows(const Part& part) {
  return std::ssize(part.piece.tokens) - static_cast<std::int64_t>(part.num_guessed);
}

std::string BatchGenerator::first_error(const PieceResult& result) {
  for (const std::string& error : result.target_errors) {
    if (!error.empty()) return error;
  }
  return result.drawn_errors.empty() ? "" : result.drawn_errors.front();
}

// In double and in the order of the tokens, so that pieces make no difference.
void BatchGenerator::take_hidden(Sequence& sequence, std::span<const float> hidden) const {
  const auto width = static_cast<std::size_t>(executor_->config().hidden_size);
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
  if (const std::string error = first_error(part.result); !error.empty()) {
    sequence.result.error = error;
    return end(sequence, Finish::kFailed);
  }
  sequence.computed += sure_rows(part);
  name_blocks(sequence);
  for (TokenResult& result : part.result.targets) {
    sequence.prompt_results.push_back(std::move(result));
  }
  const bool prompt_is_read =
      sequence.computed >= std::min(sequence.prompt_length(), sequence.to_compute());
  if (request.prompt_logprobs && prompt_is_read && !std::exchange(sequence.prompt_told, true)) {
    tell(sequence, [&] { sequence.listener->on_prompt(sequence.prompt_results); });
  }
  if (sequence.pending() > 0) return;
  if (request.max_new_tokens == 0) return end(sequence, Finish::kLength);
  take_tokens(part);
}

void BatchGenerator::take_tokens(Part& part) {
  Sequence& sequence = *part.sequence;
  const std::span guessed = std::span(part.piece.tokens).last(part.num_guessed);
  std::size_t right = 0;
  take_token(sequence, std::move(part.result.drawn[0]));
  // A token that was guessed right is what the row behind it was computed for.
  while (!sequence.ended && right < guessed.size() && sequence.tokens.back() == guessed[right]) {
    ++sequence.computed;
    ++right;
    if (!part.result.drawn_errors[right].empty()) {
      sequence.result.error = part.result.drawn_errors[right];
      end(sequence, Finish::kFailed);
    } else {
      take_token(sequence, std::move(part.result.drawn[right]));
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
