#include "atoll/serve/batch/ngram_draft.h"

#include <algorithm>

namespace atl::serve {

namespace {

constexpr std::size_t kLongestPause = 16;

// Of the tokens before `end`. Others may have the same: they are compared.
std::uint64_t hash_before(std::span<const std::int32_t> tokens, std::size_t end) {
  std::uint64_t hash = 0;
  for (std::size_t i = end - NgramDraft::kLength; i < end; ++i) {
    hash = (hash ^ static_cast<std::uint32_t>(tokens[i])) * 0x9e3779b97f4a7c15U;
  }
  return hash;
}

}  // namespace

std::vector<std::int32_t> NgramDraft::guess(std::span<const std::int32_t> tokens,
                                            std::size_t most) {
  if (tokens.size() <= kLength) return {};
  // The last ones themselves are not indexed: they would find nothing but themselves.
  for (std::size_t end = std::max(indexed_ + 1, kLength); end < tokens.size(); ++end) {
    ends_[hash_before(tokens, end)] = end;
    indexed_ = end;
  }
  if (pause_ > 0) {
    --pause_;
    return {};
  }
  const auto found = ends_.find(hash_before(tokens, tokens.size()));
  if (found == ends_.end()) return {};
  const auto before = tokens.subspan(found->second - kLength, kLength);
  if (!std::ranges::equal(before, tokens.last(kLength))) return {};
  const auto after = tokens.subspan(found->second);
  const std::size_t count = std::min({most, allowed_, kMost, after.size()});
  return {after.begin(), after.begin() + static_cast<std::ptrdiff_t>(count)};
}

void NgramDraft::learn(std::size_t guessed, std::size_t right) {
  if (guessed == 0) return;
  if (right > 0) {
    next_pause_ = 1;
    allowed_ = right == guessed ? std::min(kMost, 2 * allowed_) : std::max<std::size_t>(1, right);
    return;
  }
  allowed_ = 1;
  pause_ = next_pause_;
  next_pause_ = std::min(kLongestPause, 2 * next_pause_);
}

}  // namespace atl::serve
