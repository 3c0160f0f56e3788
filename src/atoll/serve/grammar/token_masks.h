#pragma once

// A TokenConstraint for texts of a grammar, with masks that all requests of the grammar share.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "atoll/serve/batch/request.h"
#include "atoll/serve/grammar/mask_table.h"

namespace atl::serve::grammar {

/// A MaskTable for several threads, one at a time.
struct LockedMasks {
  LockedMasks(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
      : table(std::move(grammar), std::move(vocabulary)) {}

  std::mutex mutex;  ///< guards `table`
  MaskTable table;
};

/// A grammar and the masks that were found for it. Thread-safe.
class SharedMasks {
 public:
  /// `max_bytes`: when the masks have come to so many, new ones begin; texts that use the old ones
  /// change over.
  SharedMasks(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary,
              std::size_t max_bytes = std::size_t{64} << 20);

  /// The masks to begin a text with.
  std::shared_ptr<LockedMasks> current();
  /// What a text that uses `old` goes on with; nothing: with `old`. `old` must be locked.
  std::shared_ptr<LockedMasks> replacement(const std::shared_ptr<LockedMasks>& old);
  /// How much memory the current masks take, nearly.
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<const Grammar> grammar_;  // shared with each MaskTable
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::size_t max_bytes_;
  std::atomic<std::size_t> bytes_ = 0;
  std::mutex mutex_;
  std::shared_ptr<LockedMasks> current_;  // shared with the texts that use it
};

/// A text of a grammar, so far.
class GrammarConstraint final : public TokenConstraint {
 public:
  /// `end_tokens` are allowed where the text may end.
  GrammarConstraint(std::shared_ptr<SharedMasks> masks, std::vector<std::int32_t> end_tokens);

  /// See TokenConstraint. `allowed` has a bit for each token of the vocabulary; bits beyond those
  /// are cleared. After a token that mask() had not allowed nothing may follow.
  void mask(std::span<std::uint64_t> allowed) override;
  void accept(std::int32_t token) override;
  /// Also where the vocabulary has no token for any text that could follow: it lacks a byte.
  bool is_over() const override;

 private:
  std::shared_ptr<SharedMasks> shared_;  // shared with other texts of the grammar
  std::shared_ptr<LockedMasks> masks_;   // likewise; where state_ is from
  std::vector<std::int32_t> end_tokens_;
  StateId state_ = kDeadState;
  bool has_ended_ = false;  // by an end token
};

}  // namespace atl::serve::grammar
