#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "atoll/serve/batch/block_pool.h"
#include "atoll/serve/batch/choice.h"
#include "atoll/serve/batch/generator.h"
#include "atoll/serve/batch/sequence.h"
#include "atoll/serve/batch/step_model.h"
#include "atoll/serve/batch/step_shares.h"

namespace atl::serve {

/// How many requests a BatchGenerator takes.
struct BatchOptions {
  std::int64_t slots = 8;                     ///< requests that run together
  std::int64_t max_waiting = 128;             ///< requests in the queue
  std::int64_t max_waiting_tokens = 1 << 20;  ///< of the prompts in the queue
  std::string version;                        ///< of the model: see GenerationResult
  std::int64_t vocab_size = 0;                ///< ids that may be generated; 0: all of the model's
  /// Rows up to which steps are filled with guesses of how answers go on: as many as take hardly
  /// longer than one. 0: none are guessed.
  std::int64_t rows_with_guesses = 8;
  std::int64_t prompt_rows_beside_answers = 32;  ///< see StepBudget
};

/// Generates for many requests together with one model: continuous batching (Yu et al. 2022) with
/// the keys and values in blocks (Kwon et al. 2023). Each step takes one token of every answer and
/// pieces of the prompts. What a request gets does not depend on the others, bit for bit. When
/// blocks run out, the newest running request is preempted: its blocks are freed, it waits, and its
/// tokens are computed again.
class BatchGenerator final : public Generator {
 public:
  BatchGenerator(std::unique_ptr<StepModel> model, const BatchOptions& options);
  /// Ends all requests, as cancelled.
  ~BatchGenerator() override;
  BatchGenerator(const BatchGenerator&) = delete;
  BatchGenerator& operator=(const BatchGenerator&) = delete;

  /// Serves later requests with `model`, which must have the same shape and StepRoom. Earlier
  /// requests finish with the old model first, so that an answer comes from one. Returns at once;
  /// false if an earlier replacement is still pending, and then `model` is dropped. Throws
  /// Error(kUser) for another shape.
  bool replace_model(std::unique_ptr<StepModel> model, std::string version);

  std::optional<std::uint64_t> submit(GenerationRequest request,
                                      std::shared_ptr<GenerationListener> listener) override;
  void cancel(std::uint64_t number) override;
  /// Whether a replacement is pending.
  bool is_replacing() const;
  std::string version() const override;
  std::int64_t max_waiting() const override { return options_.max_waiting; }
  GeneratorStats stats() const override;
  std::int64_t max_tokens() const override { return max_tokens_; }
  std::int64_t vocab_size() const override { return options_.vocab_size; }
  const StepRoom& room() const { return room_; }
  /// Bytes of weights that a step reads, however many requests it serves.
  std::size_t bytes_per_step() const { return bytes_per_step_; }

 private:
  using SequencePtr = std::unique_ptr<Sequence>;
  // Tokens of one sequence in a step, and what comes of them.
  struct Part {
    Sequence* sequence = nullptr;
    std::vector<std::int32_t> tokens;
    std::size_t num_guessed = 0;  // of these, at the end
    StepModel::Wanted wanted = StepModel::Wanted::kNothing;
    std::vector<std::string> errors;  // why one of `chosen` could not be made
    std::vector<TokenResult> chosen;  // behind its last token that is sure, and each guessed one
    std::vector<TokenResult> prompt;  // where the logits of all rows were wanted
    std::vector<std::string> prompt_errors;  // by row, where `prompt` has rows
  };

  void check(const GenerationRequest& request) const;
  void run();
  // False: this ends.
  bool wait_for_work();
  // Takes the model that waits where all requests before it are done. Returns the last request that
  // may begin.
  std::uint64_t change_model();
  void end_cancelled();
  void admit();
  // In batch_steps.cpp: one step, from its plan to its listeners.
  // Blocks for what each sequence takes through the next step; some may lose theirs meanwhile.
  std::vector<Part> plan_step();
  // What a sequence may guess without a step of more than so many rows.
  std::vector<std::int32_t> guess(Sequence& sequence, std::int64_t rows);
  bool make_room(Sequence& sequence, std::int64_t length);
  StepModel::Wanted wanted_of(const Sequence& sequence, std::int64_t count) const;
  void preempt_last();
  void compute(std::vector<Part>& parts);
  void take_logits(std::vector<Part>& parts, std::span<const StepModel::RowLogits> rows);
  void take_row(Part& part, const StepModel::RowLogits& row, ChoiceRoom& room) const;
  // Rows of tokens that are sure, not guessed.
  static std::int64_t sure_rows(const Part& part);
  // Of the rows that are sure.
  static std::string first_error(const Part& part);
  void take_hidden(Sequence& sequence, std::span<const float> hidden) const;
  void deliver(Part& part);
  void take_tokens(Part& part);
  void name_blocks(Sequence& sequence);
  void take_token(Sequence& sequence, TokenResult token);
  void end(Sequence& sequence, Finish finish);
  // Calls what a listener has to say; false: it has thrown, which is logged.
  static bool tell(const Sequence& sequence, const std::function<void()>& call);
  void remove_ended();
  void end_all(Finish finish, const std::string& error);
  void count_blocks();  // mutex_ is held

  std::unique_ptr<StepModel> model_;
  BatchOptions options_;
  StepRoom room_;
  std::int64_t all_tokens_;  // of the model, those beyond options_.vocab_size too
  std::int64_t max_tokens_;
  std::size_t bytes_per_step_;
  BlockPool pool_;
  std::vector<ChoiceRoom> rooms_;
  std::string version_;  // of model_

  // Of the thread alone.
  std::deque<SequencePtr> waiting_;               // those that lost their memory come first
  std::unordered_set<std::uint64_t> cancelling_;  // in this turn
  std::vector<SequencePtr> running_;              // in the order in which they got memory

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<SequencePtr> submitted_;            // not yet in waiting_
  std::unordered_set<std::uint64_t> cancelled_;  // not yet ended
  std::unordered_set<std::uint64_t> known_;      // not yet ended, those submitted among them
  std::uint64_t next_number_ = 1;
  std::int64_t queued_ = 0, queued_tokens_ = 0;  // submitted or waiting for the first time
  GeneratorStats stats_;
  std::unique_ptr<StepModel> next_model_;
  std::string next_version_;
  std::uint64_t last_of_old_ = 0;  // requests up to it are the old model's
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace atl::serve
