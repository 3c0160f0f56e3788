#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "atoll/data/row.h"
#include "atoll/data/sampler.h"
#include "atoll/data/token_source.h"

namespace atl::data {

/// What the samples of a run are made of: sample s is a row of `context` tokens, a pure function of
/// (seed, corpus, s). Safe to use from several threads, each with a RowScratch of its own.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// Tokens in a row.
  virtual std::int64_t context() const = 0;
  /// Whether rows hold several documents and say each token's position (Batch::positions).
  virtual bool has_documents() const = 0;
  /// Whether targets may be kIgnoreTarget, so that a step must count those it has.
  virtual bool may_ignore() const = 0;
  /// The samples of epoch 0, 1, ...: after so many every token of the corpus has been in one.
  virtual std::int64_t samples_in(std::int64_t epoch) const = 0;
  /// Puts the segments of sample >= 0 into scratch.segments; returns the source they are of.
  virtual const TokenSource& cut(std::int64_t sample, RowScratch& scratch) const = 0;

  /// Fills a row with a sample.
  void fill(std::int64_t sample, const RowView& row, RowScratch& scratch) const;
  /// Positions of a sample that have a target.
  virtual std::int64_t count_targets(std::int64_t sample, RowScratch& scratch) const;
  /// Where a sample is, for messages: "tokens 64 to 127 of the train split of data".
  std::string describe(std::int64_t sample) const;
};

/// Windows over a corpus in the order of a Sampler: Packing kStream or kMasked.
class WindowSamples final : public SampleSource {
 public:
  /// `source` must outlive this and have the sampler's number of tokens.
  WindowSamples(const TokenSource& source, const Sampler& sampler, Packing packing);

  std::int64_t context() const override { return sampler_.context(); }
  bool has_documents() const override { return packing_ == Packing::kMasked; }
  bool may_ignore() const override { return has_documents() || source_.has_mask(); }
  std::int64_t samples_in(std::int64_t /*epoch*/) const override { return sampler_.num_windows(); }
  const TokenSource& cut(std::int64_t sample, RowScratch& scratch) const override;

 private:
  const TokenSource& source_;
  Sampler sampler_;
  Packing packing_;
};

/// The samples of one corpus: WindowSamples, DocumentSamples or PairSamples. `source` must outlive
/// them. Throws Error(kUser) when it has too few tokens.
std::unique_ptr<SampleSource> make_samples(const TokenSource& source, std::uint64_t seed,
                                           std::int64_t context, Packing packing);

}  // namespace atl::data
