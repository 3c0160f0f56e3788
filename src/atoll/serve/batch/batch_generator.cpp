#include "atoll/serve/batch/batch_generator.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"

namespace atl::serve {

namespace {

std::int64_t blocks_for(std::int64_t positions) {
  return (positions + StepModel::kBlockSize - 1) / StepModel::kBlockSize;
}

}  // namespace

BatchGenerator::BatchGenerator(std::unique_ptr<StepModel> model, const BatchOptions& options)
    : model_(std::move(model)),
      options_(options),
      room_(model_->room()),
      all_tokens_(model_->model().config.vocab_size),
      max_tokens_(std::min(room_.max_positions, room_.num_blocks * StepModel::kBlockSize)),
      bytes_per_step_(model_->bytes_per_step()),
      pool_(room_.num_blocks, StepModel::kBlockSize),
      rooms_(static_cast<std::size_t>(room_.max_rows)),
      version_(options.version) {
  if (options_.vocab_size == 0) options_.vocab_size = all_tokens_;
  ATOLL_CHECK(options_.vocab_size <= all_tokens_, "{} of {} tokens", options_.vocab_size,
              all_tokens_);
  options_.slots = std::min(options_.slots, room_.max_rows);
  stats_.blocks = pool_.num_blocks();
  thread_ = std::thread([this] { run(); });
}

BatchGenerator::~BatchGenerator() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchGenerator::check(const GenerationRequest& request) const {
  const std::int64_t length = std::ssize(request.prompt);
  if (length == 0) throw user_error("the prompt has no token");
  const std::int64_t most = request.max_new_tokens > 0 ? max_tokens_ - 1 : max_tokens_;
  if (length > most) {
    throw user_error("the prompt has {}, and there is room for {}; shorten it",
                     counted(length, "token"), format_count(most));
  }
  for (const std::int32_t token : request.prompt) {
    if (token >= 0 && token < all_tokens_) continue;
    throw user_error("token {} of the prompt is outside the vocabulary of {}", token, all_tokens_);
  }
  if (request.max_new_tokens < 0) {
    throw user_error("max_new_tokens must be 0 or more, not {}", request.max_new_tokens);
  }
  request.changes.validate();
  if (!request.adapter.empty()) throw user_error("there is no adapter {}", request.adapter);
}

std::optional<std::uint64_t> BatchGenerator::submit(GenerationRequest request,
                                                    std::shared_ptr<GenerationListener> listener) {
  check(request);
  auto sequence = std::make_unique<Sequence>(0, std::move(request), std::move(listener));
  const std::int64_t length = sequence->prompt_length();
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const bool is_full = queued_ >= options_.max_waiting ||
                         (queued_ > 0 && queued_tokens_ + length > options_.max_waiting_tokens);
    if (is_full || ends_) {
      ++stats_.rejected;
      return std::nullopt;
    }
    number = next_number_++;
    sequence->number = number;
    known_.insert(number);
    ++queued_;
    queued_tokens_ += length;
    submitted_.push_back(std::move(sequence));
  }
  changed_.notify_all();
  return number;
}

bool BatchGenerator::replace_model(std::unique_ptr<StepModel> model, std::string version) {
  const StepRoom& room = model->room();
  const StepRoom& old = room_;
  if (model->model().config.vocab_size != all_tokens_ || room.max_positions != old.max_positions ||
      room.num_blocks != old.num_blocks || room.max_rows != old.max_rows) {
    throw user_error("a model of another shape cannot take the place of the one that is served");
  }
  {
    const std::lock_guard lock(mutex_);
    if (next_model_ != nullptr) return false;
    next_model_ = std::move(model);
    next_version_ = std::move(version);
    last_of_old_ = next_number_ - 1;
  }
  changed_.notify_all();
  return true;
}

std::uint64_t BatchGenerator::change_model() {
  constexpr std::uint64_t kAny = ~std::uint64_t{0};
  std::unique_ptr<StepModel> old;  // goes behind the lock
  const std::lock_guard lock(mutex_);
  if (next_model_ == nullptr) return kAny;
  const auto is_old = [this](const SequencePtr& sequence) {
    return sequence->number <= last_of_old_;
  };
  if (std::ranges::any_of(running_, is_old) || std::ranges::any_of(waiting_, is_old) ||
      std::ranges::any_of(submitted_, is_old)) {
    return last_of_old_;
  }
  old = std::exchange(model_, std::move(next_model_));
  version_ = next_version_;
  pool_ = BlockPool(room_.num_blocks, StepModel::kBlockSize);
  count_blocks();
  return kAny;
}

void BatchGenerator::cancel(std::uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    if (!known_.contains(number)) return;
    cancelled_.insert(number);
  }
  changed_.notify_all();
}

bool BatchGenerator::is_replacing() const {
  const std::lock_guard lock(mutex_);
  return next_model_ != nullptr;
}

std::string BatchGenerator::version() const {
  const std::lock_guard lock(mutex_);
  return next_model_ != nullptr ? next_version_ : version_;
}

GeneratorStats BatchGenerator::stats() const {
  const std::lock_guard lock(mutex_);
  GeneratorStats stats = stats_;
  stats.waiting = queued_;
  stats.waiting_tokens = queued_tokens_;
  return stats;
}

void BatchGenerator::run() {
  while (wait_for_work()) {
    try {
      end_cancelled();
      admit();
      std::vector<Part> parts = plan_step();
      if (!parts.empty()) compute(parts);
      remove_ended();
    } catch (const std::exception& error) {
      log::error("serving: {}", error.what());
      end_all(Finish::kFailed, error.what());
    }
  }
  end_all(Finish::kCancelled, "");
}

bool BatchGenerator::wait_for_work() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return ends_ || !submitted_.empty() || !cancelled_.empty() || !running_.empty() ||
           !waiting_.empty() || next_model_ != nullptr;
  });
  for (SequencePtr& sequence : submitted_) waiting_.push_back(std::move(sequence));
  submitted_.clear();
  // Under the same lock: what is cancelled is here, too.
  cancelling_ = std::exchange(cancelled_, {});
  return !ends_;
}

void BatchGenerator::end_cancelled() {
  const std::unordered_set<std::uint64_t> numbers = std::exchange(cancelling_, {});
  if (numbers.empty()) return;
  for (const SequencePtr& sequence : running_) {
    if (numbers.contains(sequence->number)) end(*sequence, Finish::kCancelled);
  }
  for (const SequencePtr& sequence : waiting_) {
    if (numbers.contains(sequence->number)) end(*sequence, Finish::kCancelled);
  }
  remove_ended();
}

void BatchGenerator::admit() {
  const std::uint64_t last = change_model();
  while (!waiting_.empty() && std::ssize(running_) < options_.slots) {
    Sequence& sequence = *waiting_.front();
    if (sequence.number > last) return;
    const std::string& key = sequence.request.cache_key;
    BlockPool::Prefix prefix;
    // The last token goes through the model in any case, for what follows it.
    if (!sequence.request.prompt_logprobs && sequence.request.pooling == Pooling::kNone) {
      prefix = pool_.find(key, sequence.tokens, (sequence.length() - 1) / StepModel::kBlockSize);
    }
    const std::int64_t missing = blocks_for(sequence.length() + 1) - std::ssize(prefix.blocks);
    if (!running_.empty() && missing > pool_.num_available()) {
      pool_.release(prefix.blocks);
      return;
    }
    sequence.named = std::ssize(prefix.blocks);
    sequence.computed = sequence.named * StepModel::kBlockSize;
    sequence.node = prefix.node;
    sequence.blocks = std::move(prefix.blocks);
    bool is_first = false;
    if (!std::exchange(sequence.was_admitted, true)) {
      sequence.result.prompt_tokens = sequence.prompt_length();
      sequence.result.cached_tokens = sequence.computed;
      sequence.result.version = version_;
      const std::lock_guard lock(mutex_);
      --queued_;
      queued_tokens_ -= sequence.prompt_length();
      stats_.prompt_tokens += sequence.prompt_length();
      stats_.cached_tokens += sequence.computed;
      is_first = true;
    }
    if (is_first) tell(sequence, [&] { sequence.listener->on_begin(); });
    sequence.is_running = true;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    const std::lock_guard lock(mutex_);
    ++stats_.running;
  }
}

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
  while (!guessed.empty() &&
         blocks_for(sequence.length() + std::ssize(guessed)) > std::ssize(sequence.blocks)) {
    const auto block = pool_.num_free() > 0 ? pool_.take() : std::nullopt;
    if (block)
      sequence.blocks.push_back(*block);
    else
      guessed.pop_back();
  }
  return guessed;
}

bool BatchGenerator::make_room(Sequence& sequence, std::int64_t length) {
  while (std::ssize(sequence.blocks) < blocks_for(length)) {
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

void BatchGenerator::end(Sequence& sequence, Finish finish) {
  if (std::exchange(sequence.ended, true)) return;
  pool_.release(sequence.blocks);
  sequence.blocks.clear();
  sequence.result.finish = finish;
  {
    const std::lock_guard lock(mutex_);
    known_.erase(sequence.number);
    cancelled_.erase(sequence.number);
    if (!sequence.was_admitted) {
      --queued_;
      queued_tokens_ -= sequence.prompt_length();
      sequence.result.prompt_tokens = sequence.prompt_length();
    }
    stats_.new_tokens += sequence.result.new_tokens;
    ++(finish == Finish::kCancelled ? stats_.cancelled
       : finish == Finish::kFailed  ? stats_.failed
                                    : stats_.finished);
    if (std::exchange(sequence.is_running, false)) --stats_.running;
    count_blocks();
  }
  tell(sequence, [&] { sequence.listener->on_end(sequence.result); });
}

template <typename Call>
bool BatchGenerator::tell(const Sequence& sequence, Call&& call) {
  try {
    call();
    return true;
  } catch (const std::exception& error) {
    log::error("serving: request {}: {}", sequence.number, error.what());
    return false;
  }
}

void BatchGenerator::remove_ended() {
  const auto has_ended = [](const SequencePtr& sequence) { return sequence->ended; };
  std::erase_if(running_, has_ended);
  std::erase_if(waiting_, has_ended);
}

void BatchGenerator::end_all(Finish finish, const std::string& error) {
  {
    const std::lock_guard lock(mutex_);
    for (SequencePtr& sequence : submitted_) waiting_.push_back(std::move(sequence));
    submitted_.clear();
  }
  const auto end_one = [&](const SequencePtr& sequence) {
    sequence->result.error = error;
    end(*sequence, finish);
  };
  std::ranges::for_each(running_, end_one);
  // What waits has done no harm.
  if (finish == Finish::kCancelled) std::ranges::for_each(waiting_, end_one);
  remove_ended();
}

void BatchGenerator::count_blocks() {
  stats_.blocks_in_use = pool_.num_blocks() - pool_.num_available();
  stats_.blocks_kept = pool_.num_kept();
}

}  // namespace atl::serve
