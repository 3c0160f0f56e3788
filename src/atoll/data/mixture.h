#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "atoll/data/samples.h"

namespace atl::data {

/// A sample of a mixture: the `sample`-th that is taken from corpus `part`.
struct MixtureRef {
  std::size_t part = 0;
  std::int64_t sample = 0;
};

/// Which corpus each sample of a run comes from: a pure function of (seed, weights, sample) that
/// holds the weights in every prefix. The corpora are halved again and again; of the n samples that
/// reach a pair of halves, floor(n q + phase) go left, q being its share of the weight. So in any
/// prefix of n samples a corpus has its share of n to within ceil(log2(number of corpora)).
class MixtureOrder {
 public:
  /// Throws Error(kUser) for no weights, and for one that is not a finite number above 0.
  MixtureOrder(std::uint64_t seed, const std::vector<double>& weights);

  /// Sample `global_index` >= 0. O(log number of corpora).
  MixtureRef locate(std::int64_t global_index) const;
  std::size_t num_parts() const { return splits_.size(); }

 private:
  struct Split {
    std::uint64_t share = 0;  // of what reaches it that goes left, in 2^-62
    std::uint64_t phase = 0;  // below 2^62
  };
  void split(std::uint64_t seed, const std::vector<double>& weights, std::size_t begin,
             std::size_t end);

  std::vector<Split> splits_;  // by the first corpus of its right half; [0] is not used
};

/// A corpus of a mixture.
struct MixturePart {
  const SampleSource* samples = nullptr;  ///< must outlive the mixture
  double weight = 1;                      ///< its share of the samples, relative to the others'
};

/// Several corpora as one: sample s is the n-th sample of corpus c, both from MixtureOrder.
class Mixture final : public SampleSource {
 public:
  /// Throws Error(kUser) for weights that MixtureOrder refuses; the contexts must be equal.
  Mixture(std::uint64_t seed, std::vector<MixturePart> parts);

  std::int64_t context() const override { return parts_.front().samples->context(); }
  bool has_documents() const override { return has_documents_; }
  bool may_ignore() const override { return may_ignore_; }
  /// The sum of all corpora's: with weights by their tokens they end together, to a few samples.
  std::int64_t samples_in(std::int64_t epoch) const override;
  const TokenSource& cut(std::int64_t sample, RowScratch& scratch) const override;
  /// Which sample of which corpus a sample of the run is.
  MixtureRef locate(std::int64_t sample) const { return order_.locate(sample); }

 private:
  std::vector<MixturePart> parts_;
  MixtureOrder order_;
  bool has_documents_ = false;
  bool may_ignore_ = false;
};

}  // namespace atl::data
