#pragma once

// Which tokens sample s of a run is made of: a pure function of (seed, corpus, s), computed without
// any list of samples. docs/data-order.md states it so that other programs can reproduce it.

#include <cstdint>

#include "atoll/base/rng.h"

namespace atl::data {

/// A permutation of [0, n) that is evaluated one element at a time: a balanced Feistel network on
/// the smallest even number of bits that holds n, repeated until the value is below n (cycle
/// walking; Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
class Permutation {
 public:
  /// `stream` keys it: block (round << 32) + half is what a round adds. `n` >= 1.
  Permutation(const RngStream& stream, std::uint64_t n);

  /// Where `i` < n goes. O(1): four evaluations are expected at worst.
  std::uint64_t operator()(std::uint64_t i) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  RngStream stream_;
  std::uint64_t n_;
  unsigned half_bits_ = 1;
};

/// Where a sample's tokens lie. Its `context` inputs begin at first_token; the targets, at the
/// token behind it.
struct SampleRef {
  std::int64_t epoch = 0;
  std::int64_t window = 0;       ///< in [0, num_windows)
  std::int64_t first_token = 0;  ///< first_token + context + 1 <= num_tokens
};

/// The order of a run's samples.
class Sampler {
 public:
  /// `num_tokens` of the corpus split. Throws Error(kUser) saying how many tokens there are when
  /// they are fewer than context + 1.
  Sampler(std::uint64_t seed, std::int64_t num_tokens, std::int64_t context);

  std::int64_t context() const { return context_; }
  std::int64_t num_tokens() const { return num_tokens_; }
  /// Samples in one epoch; each epoch takes every window once.
  std::int64_t num_windows() const { return num_windows_; }
  /// Sample `global_index` >= 0 of the run: step * global_batch + its row in the global batch.
  SampleRef sample(std::int64_t global_index) const;

 private:
  std::uint64_t seed_;
  std::int64_t num_tokens_;
  std::int64_t context_;
  std::int64_t num_windows_ = 1;
  std::int64_t num_offsets_ = 1;  // an epoch's windows begin at one of so many tokens
};

}  // namespace atl::data
