#include "atoll/data/token_source.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::data {

void TokenSource::copy_mask(std::int64_t begin, std::span<std::uint8_t> out) const {
  const auto size = static_cast<std::int64_t>(out.size());
  ATOLL_CHECK(0 <= begin && begin <= num_tokens() - size, "mask {} to {} of {} in {}", begin,
              begin + size, num_tokens(), name());
  std::fill(out.begin(), out.end(), 1);
}

void TokenSource::append_document_starts(std::int64_t /*begin*/, std::int64_t /*end*/,
                                         std::vector<std::int64_t>& /*starts*/) const {}

std::vector<std::int64_t> TokenSource::document_starts() const {
  std::vector<std::int64_t> starts;
  append_document_starts(0, num_tokens(), starts);
  return starts;
}

std::int64_t count_tokens_with_loss(const TokenSource& source) {
  if (!source.has_mask()) return source.num_tokens();
  constexpr std::int64_t kAtATime = 1 << 16;
  std::vector<std::uint8_t> mask;
  std::int64_t sum = 0;
  for (std::int64_t begin = 0; begin < source.num_tokens(); begin += kAtATime) {
    mask.resize(static_cast<std::size_t>(std::min(kAtATime, source.num_tokens() - begin)));
    source.copy_mask(begin, mask);
    sum += std::count(mask.begin(), mask.end(), std::uint8_t{1});
  }
  return sum;
}

TokenVector::TokenVector(std::string name, std::vector<std::int32_t> tokens,
                         std::vector<std::int64_t> starts, std::vector<std::uint8_t> mask)
    : name_(std::move(name)),
      tokens_(std::move(tokens)),
      starts_(std::move(starts)),
      mask_(std::move(mask)) {
  ATOLL_CHECK(mask_.empty() || mask_.size() == tokens_.size(), "{} mask bytes for {} tokens",
              mask_.size(), tokens_.size());
  const bool ascending =
      std::adjacent_find(starts_.begin(), starts_.end(), std::greater_equal<>()) == starts_.end();
  ATOLL_CHECK(ascending && (starts_.empty() ||
                            (starts_.front() >= 0 && starts_.back() < this->num_tokens())),
              "document starts of {} are out of order or range", name_);
}

void TokenVector::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto size = static_cast<std::int64_t>(out.size());
  ATOLL_CHECK(0 <= begin && begin <= num_tokens() - size, "tokens {} to {} of {} in {}", begin,
              begin + size, num_tokens(), name_);
  std::copy_n(tokens_.begin() + begin, size, out.begin());
}

void TokenVector::copy_mask(std::int64_t begin, std::span<std::uint8_t> out) const {
  if (mask_.empty()) return TokenSource::copy_mask(begin, out);
  const auto size = static_cast<std::int64_t>(out.size());
  ATOLL_CHECK(0 <= begin && begin <= num_tokens() - size, "mask {} to {} of {} in {}", begin,
              begin + size, num_tokens(), name_);
  std::copy_n(mask_.begin() + begin, size, out.begin());
}

void TokenVector::append_document_starts(std::int64_t begin, std::int64_t end,
                                         std::vector<std::int64_t>& starts) const {
  const auto first = std::lower_bound(starts_.begin(), starts_.end(), begin);
  starts.insert(starts.end(), first, std::lower_bound(first, starts_.end(), end));
}

}  // namespace atl::data
