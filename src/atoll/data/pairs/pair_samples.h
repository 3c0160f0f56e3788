#pragma once

#include <cstdint>
#include <vector>

#include "atoll/data/document_samples.h"
#include "atoll/data/samples.h"

namespace atl::data {

/// Packing kPairs: each sample is one document at the beginning of a row, and samples 2 k and
/// 2 k + 1 are a pair: documents that were neighbours in the source, the first with an even number.
/// In each epoch all pairs come once, in a new order. A pair of which no target of a document is
/// among its first `context` is left out. Memory: 16 bytes a document.
class PairSamples final : public SampleSource {
 public:
  enum class Order {
    kShuffled,
    kAsInSource,  ///< one epoch, for evaluation: samples up to samples_in(0)
  };

  /// `source` must outlive this. Warns of pairs that are left out; throws Error(kUser) when none
  /// remains.
  PairSamples(const TokenSource& source, std::uint64_t seed, std::int64_t context, Order order);

  std::int64_t context() const override { return context_; }
  /// A document stands alone in its row, from position 0 on.
  bool has_documents() const override { return false; }
  bool may_ignore() const override { return true; }
  const TokenSource& cut(std::int64_t sample, RowScratch& scratch) const override;
  std::int64_t samples_in(std::int64_t /*epoch*/) const override { return 2 * num_pairs(); }
  /// A step's loss is the mean over its pairs: one for each pair, at its first sample.
  std::int64_t count_targets(std::int64_t sample, RowScratch& scratch) const override;

  std::int64_t num_pairs() const { return static_cast<std::int64_t>(pairs_.size()); }
  /// Of the source, with those that are left out.
  std::int64_t num_documents() const { return documents_.size(); }
  std::int64_t document_of(std::int64_t sample) const;
  /// The mark of a document: whether an answer is desirable. See mark_document().
  bool is_marked(std::int64_t document) const;

 private:
  void find_pairs();

  const TokenSource& source_;
  std::uint64_t seed_;
  std::int64_t context_;
  Order order_;
  DocumentTable documents_;
  std::vector<std::int64_t> pairs_;  // that are not left out, by the number of the pair
};

/// Writes a mark into the loss mask of a whole document: where its first token would be told to
/// have a loss. Nothing else reads that, for no token comes before it to predict it.
void mark_document(bool mark, std::vector<std::uint8_t>& mask);

}  // namespace atl::data
