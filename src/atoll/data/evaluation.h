#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "atoll/data/document_samples.h"
#include "atoll/data/row.h"
#include "atoll/data/token_source.h"
#include "atoll/tensor/batch.h"

namespace atl::data {

/// How a split is cut for evaluation.
struct EvaluationOptions {
  std::int64_t micro_batch = 1;
  std::int64_t context = 1;
  /// Only the first windows, as many as have so many targets together, or more; 0: all.
  std::int64_t max_targets = 0;
  Packing packing = Packing::kStream;
};

/// Every window of a split once, in order: window w has the inputs [w T, (w + 1) T), so every token
/// but the first is a target exactly once. The last window may be short and the last batch may lack
/// rows; those positions have input 0 and target kIgnoreTarget. With Packing::kMasked no target
/// belongs to another document than its input; with kDocuments the windows are rows of documents
/// packed in the order of the split. A token that the loss mask leaves out is no target.
class EvaluationBatches {
 public:
  /// `source` must outlive this. Throws Error(kUser) when it has fewer than 2 tokens or, with
  /// documents kept apart or a loss mask, no target at all.
  EvaluationBatches(const TokenSource& source, const EvaluationOptions& options);

  std::int64_t num_windows() const { return num_windows_; }
  std::int64_t num_batches() const;
  /// Positions with a target, over all batches.
  std::int64_t num_targets() const { return num_targets_; }
  /// The next batch, i32 (micro_batch, context), valid until the next call; nothing after the last.
  /// Its first_sample is the window of row 0.
  std::optional<Batch> next();
  /// Begins again with the first batch.
  void rewind() { next_window_ = 0; }

 private:
  void take_windows();            // num_windows_ and num_targets_, by options_.max_targets
  void cut(std::int64_t window);  // into scratch_.segments

  const TokenSource& source_;
  EvaluationOptions options_;
  std::unique_ptr<DocumentTable> documents_;  // of kDocuments
  std::unique_ptr<PackedRows> rows_;          // likewise
  std::int64_t num_targets_ = 0;
  std::int64_t num_windows_ = 0;
  std::int64_t next_window_ = 0;
  RowScratch scratch_;
  std::vector<std::int32_t> tokens_;     // (B, T)
  std::vector<std::int32_t> targets_;    // (B, T)
  std::vector<std::int32_t> positions_;  // (B, T), or empty with kStream
};

}  // namespace atl::data
