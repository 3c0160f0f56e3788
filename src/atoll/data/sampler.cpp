#include "atoll/data/sampler.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::data {

namespace {

constexpr std::uint64_t kRounds = 8;
// The block that an epoch's offset is drawn from; the rounds use blocks below kRounds << 32.
constexpr std::uint64_t kOffsetBlock = std::uint64_t{255} << 32;

}  // namespace

Permutation::Permutation(const RngStream& stream, std::uint64_t n) : stream_(stream), n_(n) {
  ATOLL_CHECK(n >= 1 && n <= std::uint64_t{1} << 62, "a permutation of {} elements", n);
  while ((std::uint64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mixed = left ^ (stream_.block((round << 32) + right)[0] & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  ATOLL_DCHECK(i < n_, "{} of {}", i, n_);
  do {
    i = encrypt(i);
  } while (i >= n_);
  return i;
}

Sampler::Sampler(std::uint64_t seed, std::int64_t num_tokens, std::int64_t context)
    : seed_(seed), num_tokens_(num_tokens), context_(context) {
  if (context < 1) throw user_error("a context must be at least 1 token, not {}", context);
  if (num_tokens <= context) {
    throw user_error(
        "a context of {} tokens needs {} tokens of text and there are {}; use a shorter context "
        "(train.context), more text (data.text), or hold out less of it (data.held_out)",
        context, context + 1, num_tokens);
  }
  // One window less than would fit leaves room to shift all windows by up to context - 1 tokens.
  num_windows_ = std::max<std::int64_t>(1, (num_tokens - context) / context);
  num_offsets_ = std::min(context, num_tokens - num_windows_ * context);
}

SampleRef Sampler::sample(std::int64_t global_index) const {
  ATOLL_CHECK(global_index >= 0, "sample {}", global_index);
  SampleRef ref;
  ref.epoch = global_index / num_windows_;
  const RngStream stream(seed_, RngPurpose::kShuffle, static_cast<std::uint64_t>(ref.epoch));
  const Permutation permutation(stream, static_cast<std::uint64_t>(num_windows_));
  const auto place = static_cast<std::uint64_t>(global_index % num_windows_);
  ref.window = static_cast<std::int64_t>(permutation(place));
  const auto words = stream.block(kOffsetBlock);
  const std::uint64_t draw = (std::uint64_t{words[1]} << 32) | words[0];
  const auto offset = static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(num_offsets_));
  ref.first_token = offset + ref.window * context_;
  return ref;
}

}  // namespace atl::data
