#include "atoll/tune/search/searcher.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "atoll/tune/search/draws.h"

namespace atl::tune {

namespace {

// The `index`-th prime, from 2.
std::uint64_t prime(std::size_t index) {
  static const std::vector<std::uint64_t> primes = [] {
    std::vector<std::uint64_t> found;
    for (std::uint64_t n = 2; found.size() < 256; ++n) {
      const bool is_prime =
          std::none_of(found.begin(), found.end(), [&](std::uint64_t p) { return n % p == 0; });
      if (is_prime) found.push_back(n);
    }
    return found;
  }();
  return primes[index % primes.size()];
}

}  // namespace

QuasiRandom::QuasiRandom(std::uint64_t seed, std::size_t dimensions) {
  for (std::size_t i = 0; i < dimensions; ++i) {
    Base& base = bases_.emplace_back(Base{prime(i), {}});
    std::vector<std::uint64_t> permutation(base.base);
    for (double place = 1; place > 0x1p-53; place /= static_cast<double>(base.base)) {
      const std::uint64_t number = (std::uint64_t{i} << 32) | base.permutations.size();
      Draws draws(seed, DrawFor::kQuasiRandom, number);
      std::iota(permutation.begin(), permutation.end(), 0);
      for (std::size_t k = base.base; k > 1; --k) {
        std::swap(permutation[k - 1], permutation[draws.below(k)]);
      }
      base.permutations.push_back(permutation);
    }
  }
}

Units QuasiRandom::point(std::uint64_t index) const {
  Units units;
  for (const Base& base : bases_) {
    double sum = 0;
    double place = 1;
    std::uint64_t rest = index;
    for (const std::vector<std::uint64_t>& permutation : base.permutations) {
      place /= static_cast<double>(base.base);
      sum += place * static_cast<double>(permutation[rest % base.base]);
      rest /= base.base;
    }
    units.push_back(std::min(sum, 1 - 0x1p-53));
  }
  return units;
}

Units quasi_random_point(const SearchView& view) {
  return QuasiRandom(view.seed, view.space.size()).point(static_cast<std::uint64_t>(view.number));
}

bool is_same_place(const Units& a, const Units& b) {
  constexpr double kNear = 1e-3;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) < kNear)) return false;
  }
  return true;
}

bool is_taken(const SearchView& view, const Units& units) {
  const auto same = [&](const Observation& seen) { return is_same_place(seen.units, units); };
  return std::any_of(view.done.begin(), view.done.end(), same) ||
         std::any_of(view.running.begin(), view.running.end(), same);
}

}  // namespace atl::tune
