#include "atoll/serve/batch/batch_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/serve/batch/local_executor.h"

namespace atl::serve {

namespace {

std::unique_ptr<StepExecutor> executor_of(std::unique_ptr<StepModel> model,
                                          std::int64_t vocab_size) {
  if (vocab_size == 0) vocab_size = model->model().config.vocab_size;
  return std::make_unique<LocalExecutor>(std::move(model), vocab_size);
}

std::string joined(const std::string& model, const StepAdapter* adapter) {
  if (adapter == nullptr) return model;
  const std::string at = adapter->version.empty() ? "" : "@" + adapter->version;
  return fmt::format("{}{}{}{}", model, model.empty() ? "" : "+", adapter->name, at);
}

}  // namespace

BatchGenerator::BatchGenerator(std::unique_ptr<StepModel> model, const BatchOptions& options)
    : BatchGenerator(executor_of(std::move(model), options.vocab_size), options) {}

BatchGenerator::BatchGenerator(std::unique_ptr<StepExecutor> executor, const BatchOptions& options)
    : executor_(std::move(executor)),
      options_(options),
      room_(executor_->room()),
      all_tokens_(executor_->config().vocab_size),
      positions_(std::min(room_.max_positions, room_.num_blocks * StepModel::kBlockSize)),
      max_tokens_(positions_ + (options.last_needs_no_position ? 1 : 0)),
      bytes_per_step_(executor_->bytes_per_step()),
      adapter_rank_(executor_->adapter_rank()),
      adapters_(options.max_adapters, adapter_rank_),
      pool_(room_.num_blocks, StepModel::kBlockSize),
      version_(options.version),
      epoch_(executor_->epoch()) {
  if (options_.vocab_size == 0) options_.vocab_size = all_tokens_;
  ATOLL_CHECK(options_.vocab_size <= all_tokens_, "{} of {} tokens", options_.vocab_size,
              all_tokens_);
  options_.slots = std::min(options_.slots, room_.max_rows);
  stats_.blocks = pool_.num_blocks();
  executor_->on_change([this] {
    {
      const std::lock_guard lock(mutex_);
      has_news_ = true;
    }
    changed_.notify_all();
  });
  thread_ = std::thread([this] { run(); });
}

BatchGenerator::~BatchGenerator() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
  executor_.reset();  // before what on_change() uses
}

void BatchGenerator::check(const GenerationRequest& request) const {
  const std::int64_t length = std::ssize(request.prompt);
  if (length == 0) throw user_error("the prompt has no token");
  // A prompt whose last token goes through no layer may be longer, where sequences may.
  const bool is_scored = request.prompt_logprobs && request.pooling == Pooling::kNone;
  const std::int64_t most = request.max_new_tokens > 0 ? max_tokens_ - 1
                            : is_scored                ? max_tokens_
                                                       : positions_;
  if (length > most) {
    throw user_error("the prompt has {}, and there is room for {}; shorten it",
                     counted(length, "token"), format_count(most));
  }
  for (const std::int32_t token : request.prompt) {
    if (token >= 0 && token < all_tokens_) continue;
    throw user_error("token {} of the prompt is outside the vocabulary of {}", token, all_tokens_);
  }
  ATOLL_CHECK(!request.prompt_logprobs || request.first_prompt_logprob == 1 ||
                  (request.first_prompt_logprob > 1 && request.first_prompt_logprob < length),
              "log-probabilities from token {} of {} on", request.first_prompt_logprob, length);
  if (request.max_new_tokens < 0) {
    throw user_error("max_new_tokens must be 0 or more, not {}", request.max_new_tokens);
  }
  request.changes.validate();
}

AdapterTable::Ptr BatchGenerator::adapter_of(const std::string& name) const {
  if (name.empty()) return nullptr;
  AdapterTable::Ptr adapter = adapters_.find(name);
  if (adapter == nullptr) throw user_error("there is no adapter {}", name);
  return adapter;
}

void BatchGenerator::put_adapter(StepAdapter adapter) {
  const std::unique_lock lock(version_mutex_);
  adapters_.put(std::move(adapter));
}

bool BatchGenerator::remove_adapter(const std::string& name) {
  const std::unique_lock lock(version_mutex_);
  return adapters_.remove(name);
}

std::shared_lock<std::shared_mutex> BatchGenerator::hold_version() const {
  return std::shared_lock(version_mutex_);
}

std::optional<std::uint64_t> BatchGenerator::submit(GenerationRequest request,
                                                    std::shared_ptr<GenerationListener> listener) {
  check(request);
  AdapterTable::Ptr adapter = adapter_of(request.adapter);
  // Keys and values of an adapter are of no use to others, not even to a later one of its name.
  if (adapter != nullptr) {
    request.cache_key = fmt::format("\x01{}\n{}", adapter->number, request.cache_key);
  }
  auto sequence = std::make_unique<Sequence>(0, std::move(request), std::move(listener));
  sequence->adapter = std::move(adapter);
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
      room.num_blocks != old.num_blocks || room.max_rows != old.max_rows ||
      model->adapter_rank() != adapter_rank_) {
    throw user_error("a model of another shape cannot take the place of the one that is served");
  }
  {
    const std::unique_lock version_lock(version_mutex_);
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
  std::unique_ptr<StepExecutor> old;  // goes behind the lock
  const std::lock_guard lock(mutex_);
  if (next_model_ == nullptr) return kAny;
  const auto is_old = [this](const SequencePtr& sequence) {
    return sequence->number <= last_of_old_;
  };
  if (std::ranges::any_of(running_, is_old) || std::ranges::any_of(waiting_, is_old) ||
      std::ranges::any_of(submitted_, is_old)) {
    return last_of_old_;
  }
  old = std::exchange(executor_, executor_of(std::move(next_model_), options_.vocab_size));
  epoch_ = executor_->epoch();
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

std::string BatchGenerator::version(const std::string& adapter) const {
  const AdapterTable::Ptr asked = adapter.empty() ? nullptr : adapters_.find(adapter);
  const std::lock_guard lock(mutex_);
  return joined(next_model_ != nullptr ? next_version_ : version_, asked.get());
}

GeneratorStats BatchGenerator::stats() const {
  const std::lock_guard lock(mutex_);
  GeneratorStats stats = stats_;
  stats.waiting = queued_;
  stats.waiting_tokens = queued_tokens_;
  stats.stages = executor_->stages();
  return stats;
}

void BatchGenerator::run() {
  while (wait_for_work()) {
    is_idle_ = true;
    try {
      turn();
    } catch (const std::exception& error) {
      log::error("serving: {}", error.what());
      steps_.clear();
      is_idle_ = false;
      end_all(Finish::kFailed, error.what());
    }
  }
  steps_.clear();
  end_all(Finish::kCancelled, "");
}

void BatchGenerator::turn() {
  follow_epoch();
  end_cancelled();
  collect_steps();
  remove_ended();
  if (executor_->is_ready()) {
    admit();
    begin_steps();
  }
  collect_steps();
  remove_ended();
}

bool BatchGenerator::wait_for_work() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return ends_ || has_news_ || !submitted_.empty() || !cancelled_.empty() ||
           next_model_ != nullptr || (!is_idle_ && !(running_.empty() && waiting_.empty()));
  });
  has_news_ = false;
  for (SequencePtr& sequence : submitted_) waiting_.push_back(std::move(sequence));
  submitted_.clear();
  // Under the same lock: what is cancelled is here, too.
  cancelling_ = std::exchange(cancelled_, {});
  return !ends_;
}

void BatchGenerator::follow_epoch() {
  const std::uint64_t epoch = executor_->epoch();
  if (epoch == epoch_) return;
  epoch_ = epoch;
  steps_.clear();
  for (const SequencePtr& sequence : running_) {
    sequence->in_step = false;
    if (sequence->is_cancelled) end(*sequence, Finish::kCancelled);
  }
  remove_ended();
  while (!running_.empty()) {
    forget_memory(*running_.back());
    waiting_.push_front(std::move(running_.back()));
    running_.pop_back();
  }
  pool_ = BlockPool(room_.num_blocks, StepModel::kBlockSize);
  const std::lock_guard lock(mutex_);
  stats_.running = 0;
  ++stats_.restarts;
  count_blocks();
}

void BatchGenerator::end_cancelled() {
  const std::unordered_set<std::uint64_t> numbers = std::exchange(cancelling_, {});
  if (numbers.empty()) return;
  for (const SequencePtr& sequence : running_) {
    if (!numbers.contains(sequence->number)) continue;
    sequence->is_cancelled = true;  // a step that is under way uses its memory
    if (!sequence->in_step) end(*sequence, Finish::kCancelled);
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
    // Tokens behind which something is wanted go through the model in any case.
    const std::int64_t wanted = sequence.request.prompt_logprobs
                                    ? sequence.request.first_prompt_logprob
                                    : sequence.length();
    if (sequence.request.pooling == Pooling::kNone) {
      prefix = pool_.find(key, sequence.tokens, (wanted - 1) / StepModel::kBlockSize);
    }
    const std::int64_t missing =
        StepModel::blocks_for(sequence.length() + 1) - std::ssize(prefix.blocks);
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
      sequence.result.version = joined(version_, sequence.adapter.get());
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
  sequence.adapter.reset();  // before anybody hears of the end: who does may want its room
  tell(sequence, [&] { sequence.listener->on_end(sequence.result); });
}

bool BatchGenerator::tell(const Sequence& sequence, const std::function<void()>& call) {
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
