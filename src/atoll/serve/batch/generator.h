#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "atoll/serve/batch/request.h"
#include "atoll/serve/batch/stage_status.h"

namespace atl::serve {

/// What a generator has done and is doing, since it began.
struct GeneratorStats {
  std::int64_t running = 0;         ///< requests that have memory
  std::int64_t waiting = 0;         ///< in the queue
  std::int64_t waiting_tokens = 0;  ///< of their prompts
  std::int64_t finished = 0;        ///< ended by themselves
  std::int64_t cancelled = 0;
  std::int64_t rejected = 0;  ///< at a full queue
  std::int64_t failed = 0;
  std::int64_t preempted = 0;      ///< times that one lost its memory to another
  std::int64_t prompt_tokens = 0;  ///< taken in, those of the cache among them
  std::int64_t cached_tokens = 0;
  std::int64_t new_tokens = 0;
  std::int64_t guessed_tokens = 0;  ///< put behind answers before it was known what comes
  std::int64_t right_guesses = 0;   ///< of these, that came
  std::int64_t steps = 0;
  std::int64_t restarts = 0;        ///< times that a stage was lost and all was computed again
  std::int64_t blocks = 0;          ///< of the cache of keys and values
  std::int64_t blocks_in_use = 0;   ///< by running requests
  std::int64_t blocks_kept = 0;     ///< by nobody, for prompts that begin alike
  std::vector<StageStatus> stages;  ///< machines with some of the layers each; none: one process
};

/// Generates for many clients at once. Any thread may call it.
class Generator {
 public:
  virtual ~Generator() = default;

  /// Takes a request; its listener hears of it from the generator's thread, perhaps before this
  /// returns. Returns its number; nothing when the queue is full: the client may try again.
  /// Throws Error(kUser), naming what is wrong, for a request that can never be served: a prompt
  /// that is longer than the model's positions or than the cache, a token outside the vocabulary,
  /// an adapter that is not there.
  virtual std::optional<std::uint64_t> submit(GenerationRequest request,
                                              std::shared_ptr<GenerationListener> listener) = 0;
  /// Ends a request, wherever it is; on_end() follows with kCancelled unless it has ended already.
  virtual void cancel(std::uint64_t number) = 0;

  /// The version of the model, and of the adapter of that name, that will serve requests submitted
  /// now: "step-00000060", "step-00000060+dates@step-00000200"; empty where the model never
  /// changes.
  virtual std::string version(const std::string& /*adapter*/) const { return {}; }
  /// While it lives, version() stays as it is. To be kept for a short time, and by a thread that
  /// has no other.
  virtual std::shared_lock<std::shared_mutex> hold_version() const { return {}; }
  /// The names that GenerationRequest::adapter may have.
  virtual std::vector<std::string> adapters() const { return {}; }
  /// Requests that may wait at most.
  virtual std::int64_t max_waiting() const { return std::numeric_limits<std::int64_t>::max(); }
  virtual GeneratorStats stats() const = 0;
  /// Tokens of prompt and answer together that one request may have.
  virtual std::int64_t max_tokens() const = 0;
  /// Ids below it may be generated.
  virtual std::int64_t vocab_size() const = 0;
};

}  // namespace atl::serve
