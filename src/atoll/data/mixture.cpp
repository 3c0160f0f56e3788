#include "atoll/data/mixture.h"

#include <cmath>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/base/rng.h"

namespace atl::data {

namespace {

constexpr int kShareBits = 62;
// What the second name of a stream says; 0 to 2 are orders of windows, documents and rows.
constexpr std::uint64_t kMixturePhase = 3;

std::vector<double> weights_of(const std::vector<MixturePart>& parts) {
  std::vector<double> weights;
  for (const MixturePart& part : parts) weights.push_back(part.weight);
  return weights;
}

}  // namespace

MixtureOrder::MixtureOrder(std::uint64_t seed, const std::vector<double>& weights)
    : splits_(weights.size()) {
  if (weights.empty()) throw user_error("a mixture needs at least one corpus");
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] <= 0) {
      throw user_error("the weight of corpus {} is {}; it must be a number above 0", i + 1,
                       weights[i]);
    }
  }
  if (!std::isfinite(std::accumulate(weights.begin(), weights.end(), 0.0))) {
    throw user_error("the weights of the corpora add up to more than a number can hold");
  }
  split(seed, weights, 0, weights.size());
}

void MixtureOrder::split(std::uint64_t seed, const std::vector<double>& weights, std::size_t begin,
                         std::size_t end) {
  if (end - begin < 2) return;
  const std::size_t middle = begin + (end - begin) / 2;
  const auto at = [&](std::size_t i) { return weights.begin() + static_cast<std::ptrdiff_t>(i); };
  const double left = std::accumulate(at(begin), at(middle), 0.0);
  const double right = std::accumulate(at(middle), at(end), 0.0);
  splits_[middle].share = static_cast<std::uint64_t>(std::ldexp(left / (left + right), kShareBits));
  const RngStream stream(seed, RngPurpose::kShuffle, middle, kMixturePhase);
  const auto words = stream.block(0);
  splits_[middle].phase = ((std::uint64_t{words[1]} << 32) | words[0]) >> (64 - kShareBits);
  split(seed, weights, begin, middle);
  split(seed, weights, middle, end);
}

MixtureRef MixtureOrder::locate(std::int64_t global_index) const {
  ATOLL_CHECK(global_index >= 0, "sample {}", global_index);
  auto n = static_cast<std::uint64_t>(global_index);
  std::size_t begin = 0;
  std::size_t end = splits_.size();
  while (end - begin > 1) {
    const std::size_t middle = begin + (end - begin) / 2;
    const Split& split = splits_[middle];
    const auto left_of = [&split](std::uint64_t count) {
      const auto product = static_cast<unsigned __int128>(count) * split.share + split.phase;
      return static_cast<std::uint64_t>(product >> kShareBits);
    };
    const std::uint64_t left = left_of(n);
    if (left_of(n + 1) > left) {
      n = left;
      end = middle;
    } else {
      n -= left;
      begin = middle;
    }
  }
  return {begin, static_cast<std::int64_t>(n)};
}

Mixture::Mixture(std::uint64_t seed, std::vector<MixturePart> parts)
    : parts_(std::move(parts)), order_(seed, weights_of(parts_)) {
  for (const MixturePart& part : parts_) {
    ATOLL_CHECK(part.samples != nullptr);
    ATOLL_CHECK_EQ(part.samples->context(), context());
    has_documents_ = has_documents_ || part.samples->has_documents();
    may_ignore_ = may_ignore_ || part.samples->may_ignore();
  }
}

std::int64_t Mixture::samples_in(std::int64_t epoch) const {
  std::int64_t sum = 0;
  for (const MixturePart& part : parts_) sum += part.samples->samples_in(epoch);
  return sum;
}

const TokenSource& Mixture::cut(std::int64_t sample, RowScratch& scratch) const {
  const MixtureRef ref = locate(sample);
  return parts_[ref.part].samples->cut(ref.sample, scratch);
}

}  // namespace atl::data
