#include "atoll/serve/batch/task_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/serve/batch/step_model.h"

namespace atl::serve {

// One request: a choice of a question, or the answer to be written.
struct TaskBatch::Work {
  std::size_t question = 0;
  std::size_t choice = 0;
  std::vector<std::int32_t> tokens;
  std::int64_t first_scored = 0;  // of the tokens; 0: what follows them is written

  // Blocks at the beginning that may come from the cache.
  std::int64_t reusable_blocks() const {
    const std::int64_t wanted = first_scored > 0 ? first_scored : std::ssize(tokens);
    return (wanted - 1) / StepModel::kBlockSize;
  }
  // Blocks at the beginning of which `other` has the same.
  std::int64_t shared_blocks(const Work& other) const {
    const auto [end, unused] = std::ranges::mismatch(tokens, other.tokens);
    return std::min((end - tokens.begin()) / StepModel::kBlockSize, reusable_blocks());
  }
};

// A question whose answer is under way.
struct TaskBatch::Open {
  std::vector<double> log_likelihoods;
  std::optional<AnswerText> text;
  AnswerEnd end = AnswerEnd::kMaxNewTokens;
  std::size_t missing = 0;  // requests that have not ended
};

// What the generator's thread tells. Of an open question it writes what no other request writes,
// before it tells of the end.
struct TaskBatch::Shared {
  struct Ended {
    std::uint64_t id = 0;
    Finish finish = Finish::kFailed;
    std::string error;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Ended> ended;
};

class TaskBatch::Listener final : public GenerationListener {
 public:
  Listener(std::shared_ptr<Shared> shared, std::shared_ptr<Open> open, std::size_t choice,
           std::uint64_t id)
      : shared_(std::move(shared)), open_(std::move(open)), choice_(choice), id_(id) {}

  void on_prompt(std::span<const TokenResult> tokens) override {
    double sum = 0;
    for (const TokenResult& token : tokens) sum += token.logprob;
    open_->log_likelihoods[choice_] = sum;
  }
  bool on_token(const TokenResult& token) override {
    if (open_->text->push(token.token)) return true;
    open_->end = AnswerEnd::kStopText;
    return false;
  }
  void on_end(const GenerationResult& result) override {
    if (result.stop_token >= 0) open_->end = AnswerEnd::kStopToken;
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->ended.push_back({id_, result.finish, result.error});
    }
    shared_->changed.notify_all();
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<Open> open_;
  std::size_t choice_;
  std::uint64_t id_;
};

// One call of answer().
class TaskBatch::Answering {
 public:
  Answering(TaskBatch& batch, std::span<const TaskQuestion> questions, const Take& take)
      : batch_(batch), questions_(questions), take_(take) {}
  ~Answering() { end_all(); }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

  bool run() {
    while (given_ < questions_.size()) {
      if (batch_.options_.interrupted && batch_.options_.interrupted()) return false;
      begin_some();
      wait();
      give();
    }
    return true;
  }

 private:
  // Questions that are looked at together, for a request that need not wait.
  static constexpr std::size_t kWindow = 64;
  // Requests that have ended and whose beginnings are likely still in the cache.
  static constexpr std::size_t kRemembered = 64;
  // A signal wakes nobody.
  static constexpr std::chrono::milliseconds kLook{100};

  struct Running {
    Work work;
    std::uint64_t number = 0;  // the generator's
  };

  void open_question(std::size_t index) {
    const TaskQuestion& question = questions_[index];
    const std::vector<std::int32_t>& context = question.encoded->context;
    ATOLL_CHECK(!context.empty());
    auto open = std::make_shared<Open>();
    if (question.item->is_multiple_choice()) {
      const auto& continuations = question.encoded->continuations;
      ATOLL_CHECK_EQ(continuations.size(), question.item->choices.size());
      for (std::size_t i = 0; i < continuations.size(); ++i) {
        std::vector<std::int32_t> tokens = context;
        tokens.insert(tokens.end(), continuations[i].begin(), continuations[i].end());
        waiting_.push_back({index, i, std::move(tokens), std::ssize(context)});
      }
      open->missing = continuations.size();
      open->log_likelihoods.resize(continuations.size());
    } else {
      ATOLL_CHECK(!question.item->answers.empty());
      waiting_.push_back({index, 0, context, 0});
      open->missing = 1;
      open->text.emplace(batch_.tokenizer_, batch_.options_.stops_of(*question.encoded));
    }
    open_.emplace(index, std::move(open));
  }

  // Whether another request takes more of its beginning through the model just now than the cache
  // has already.
  bool should_wait(const Work& work) const {
    std::int64_t coming = 0, there = 0;
    for (const auto& [id, running] : running_) {
      coming = std::max(coming, work.shared_blocks(running.work));
    }
    if (coming == 0) return false;
    for (const Work& ended : ended_) there = std::max(there, work.shared_blocks(ended));
    return coming > there;
  }

  void begin_some() {
    while (std::ssize(running_) < batch_.at_once_) {
      while (opened_ < questions_.size() && opened_ < given_ + kWindow) open_question(opened_++);
      const auto next =
          std::ranges::find_if(waiting_, [this](const Work& work) { return !should_wait(work); });
      if (next == waiting_.end()) return;
      Work work = std::move(*next);
      waiting_.erase(next);
      begin(std::move(work));
    }
  }

  void begin(Work work) {
    GenerationRequest request = {.prompt = work.tokens, .sampling = {.temperature = 0}};
    if (work.first_scored > 0) {
      request.prompt_logprobs = true;
      request.first_prompt_logprob = work.first_scored;
      request.top_logprobs = 0;
    } else {
      request.max_new_tokens = batch_.options_.max_new_tokens;
      request.stop_tokens = batch_.options_.stop_tokens;
    }
    const std::uint64_t id = next_id_++;
    const auto number = batch_.generator_.submit(
        std::move(request),
        std::make_shared<Listener>(shared_, open_.at(work.question), work.choice, id));
    ATOLL_CHECK(number.has_value(), "the queue has room for {} requests", batch_.at_once_);
    running_.emplace(id, Running{std::move(work), *number});
  }

  // Waits for a request to end, or for the time of a look at the signals.
  void wait() {
    std::vector<Shared::Ended> ended;
    {
      std::unique_lock lock(shared_->mutex);
      shared_->changed.wait_for(lock, kLook, [this] { return !shared_->ended.empty(); });
      ended = std::exchange(shared_->ended, {});
    }
    std::string failure;
    for (const Shared::Ended& one : ended) {
      Work work = std::move(running_.at(one.id).work);
      running_.erase(one.id);
      if (one.finish == Finish::kFailed || one.finish == Finish::kCancelled) {
        failure = fmt::format("the question in line {}: {}", questions_[work.question].item->line,
                              one.error);
      }
      --open_.at(work.question)->missing;
      ended_.push_back(std::move(work));
      if (ended_.size() > kRemembered) ended_.pop_front();
    }
    if (!failure.empty()) throw make_error(ErrorKind::kNumeric, "{}", failure);
  }

  // Gives the answers that are next in order.
  void give() {
    for (auto next = open_.find(given_); next != open_.end() && next->second->missing == 0;
         next = open_.find(given_)) {
      const TaskItem& item = *questions_[given_].item;
      Open& open = *next->second;
      TaskAnswer answer;
      if (open.text) {
        answer.generated = open.text->finish(open.end, item, batch_.options_.extract);
      } else {
        answer.scores = choice_scores(item, std::move(open.log_likelihoods));
      }
      open_.erase(next);
      take_(given_++, answer);
    }
  }

  // Nothing of this call goes on, so that the next one finds the generator free.
  void end_all() {
    for (const auto& [id, running] : running_) batch_.generator_.cancel(running.number);
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait(lock, [this] {
      for (const Shared::Ended& one : shared_->ended) running_.erase(one.id);
      shared_->ended.clear();
      return running_.empty();
    });
  }

  TaskBatch& batch_;
  std::span<const TaskQuestion> questions_;
  const Take& take_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::size_t opened_ = 0, given_ = 0;
  std::map<std::size_t, std::shared_ptr<Open>> open_;  // from given_ on
  std::deque<Work> waiting_;
  std::map<std::uint64_t, Running> running_;
  std::deque<Work> ended_;
  std::uint64_t next_id_ = 0;
};

TaskBatch::TaskBatch(Generator& generator, const Tokenizer& tokenizer, const AnswerOptions& options,
                     std::int64_t at_once)
    : generator_(generator), tokenizer_(tokenizer), options_(options), at_once_(at_once) {
  options.validate();
  ATOLL_CHECK(at_once >= 1 && at_once <= generator.max_waiting(), "{} requests at once", at_once);
}

bool TaskBatch::answer(std::span<const TaskQuestion> questions, const Take& take) {
  return Answering(*this, questions, take).run();
}

}  // namespace atl::serve
