#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "atoll/serve/batch/adapter_table.h"
#include "atoll/serve/batch/block_pool.h"
#include "atoll/serve/batch/generator.h"
#include "atoll/serve/batch/sequence.h"
#include "atoll/serve/batch/step_executor.h"
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
  /// Whether a sequence may have one token more than there are positions, as its last one goes
  /// through no layer. False: prompt and answer together have as many, as clients count.
  bool last_needs_no_position = false;
  std::int64_t max_adapters = 0;  ///< see AdapterTable; of the executor's adapter_rank()
};

/// Generates for many requests together with one model: continuous batching (Yu et al. 2022) with
/// the keys and values in blocks (Kwon et al. 2023). Each step takes one token of every answer and
/// pieces of the prompts. What a request gets does not depend on the others, bit for bit. When
/// blocks run out, the newest running request is preempted: its blocks are freed, it waits, and its
/// tokens are computed again. The same happens to all of them where the executor loses its cache.
/// Where it takes several steps at once, each has a share of the answers.
class BatchGenerator final : public Generator {
 public:
  BatchGenerator(std::unique_ptr<StepModel> model, const BatchOptions& options);
  BatchGenerator(std::unique_ptr<StepExecutor> executor, const BatchOptions& options);
  /// Ends all requests, as cancelled.
  ~BatchGenerator() override;
  BatchGenerator(const BatchGenerator&) = delete;
  BatchGenerator& operator=(const BatchGenerator&) = delete;

  /// Serves later requests with `model`, in this process, which must have the same shape and
  /// StepRoom. Earlier requests finish with the old model first, so that an answer comes from one.
  /// Returns at once; false if an earlier replacement is still pending, and then `model` is
  /// dropped. Throws Error(kUser) for another shape.
  bool replace_model(std::unique_ptr<StepModel> model, std::string version);

  /// Later requests that ask for an adapter of that name get this one; earlier ones finish with the
  /// one that they asked for. Throws as AdapterTable::put.
  void put_adapter(StepAdapter adapter);
  /// Later requests cannot ask for that name. False: there is no such adapter.
  bool remove_adapter(const std::string& name);
  /// Throws as AdapterTable::check_room.
  void check_adapter_room(const std::string& name) const { adapters_.check_room(name); }

  std::optional<std::uint64_t> submit(GenerationRequest request,
                                      std::shared_ptr<GenerationListener> listener) override;
  void cancel(std::uint64_t number) override;
  /// Whether a replacement is pending.
  bool is_replacing() const;
  std::string version(const std::string& adapter) const override;
  std::shared_lock<std::shared_mutex> hold_version() const override;
  std::vector<std::string> adapters() const override { return adapters_.names(); }
  std::int64_t max_waiting() const override { return options_.max_waiting; }
  GeneratorStats stats() const override;
  std::int64_t max_tokens() const override { return max_tokens_; }
  std::int64_t vocab_size() const override { return options_.vocab_size; }
  const StepRoom& room() const { return room_; }
  /// Bytes of weights that a step reads, however many requests it serves.
  std::size_t bytes_per_step() const { return bytes_per_step_; }

 private:
  using SequencePtr = std::unique_ptr<Sequence>;
  // A sequence in a step, and what comes of it.
  struct Part {
    Sequence* sequence = nullptr;
    StepPiece piece;
    std::size_t num_guessed = 0;  // of its tokens, at the end
    PieceResult result;
  };

  void check(const GenerationRequest& request) const;
  // Null for an empty name. Throws Error(kUser) for another that is not there.
  AdapterTable::Ptr adapter_of(const std::string& name) const;
  void run();
  // False: this ends.
  bool wait_for_work();
  void turn();
  // Where the executor has lost its cache: everything is computed again.
  void follow_epoch();
  // Takes the model that waits where all requests before it are done. Returns the last request that
  // may begin.
  std::uint64_t change_model();
  void end_cancelled();
  void admit();
  // In batch_steps.cpp: one step, from its plan to its listeners.
  void begin_steps();
  // The sequences of the next step: a share of those that are in none.
  std::vector<Sequence*> next_sequences();
  // Blocks for what each sequence takes through the next step; some may lose theirs meanwhile.
  std::vector<Part> plan_step();
  Part plan_part(Sequence& sequence, std::int64_t count) const;
  void add_guesses(Part& part, std::int64_t rows);
  // What a sequence may guess without a step of more than so many rows.
  std::vector<std::int32_t> guess(Sequence& sequence, std::int64_t rows);
  bool make_room(Sequence& sequence, std::int64_t length);
  StepModel::Wanted wanted_of(const Sequence& sequence, std::int64_t count) const;
  void preempt_last();
  void forget_memory(Sequence& sequence);
  void collect_steps();
  void take_result(StepResult result);
  // Rows of tokens that are sure, not guessed.
  static std::int64_t sure_rows(const Part& part);
  // Of the rows that are sure.
  static std::string first_error(const PieceResult& result);
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

  std::unique_ptr<StepExecutor> executor_;
  BatchOptions options_;
  StepRoom room_;
  std::int64_t all_tokens_;  // of the model, those beyond options_.vocab_size too
  std::int64_t positions_;   // that one sequence may take
  std::int64_t max_tokens_;  // that it may have
  std::size_t bytes_per_step_;
  std::int64_t adapter_rank_;  // of the executor
  AdapterTable adapters_;
  BlockPool pool_;
  std::string version_;  // of the executor's model

  // Of the thread alone.
  std::deque<SequencePtr> waiting_;               // those that lost their memory come first
  std::unordered_set<std::uint64_t> cancelling_;  // in this turn
  std::vector<SequencePtr> running_;              // in the order in which they got memory
  std::unordered_map<std::uint64_t, std::vector<Part>> steps_;  // under way, by number
  std::uint64_t next_step_ = 1;
  std::uint64_t epoch_ = 0;  // of the executor
  bool is_idle_ = true;      // the last turn found nothing to do

  // Shared by whoever submits requests that one version is to answer; taken before mutex_.
  mutable std::shared_mutex version_mutex_;
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
  bool has_news_ = false;          // of the executor
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace atl::serve
