#pragma once

// Data of which every rank knows what every other has, and what must come of it, worked out element
// by element in the plainest way.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "atoll/comm/group.h"

namespace atl::comm::test {

template <typename T>
Tensor view(std::vector<T>& values) {
  return {values.data(), {dtype_of<T>(), {static_cast<std::int64_t>(values.size())}}};
}

/// Numbers of very different sizes: their sum depends on the order, and so do its bits.
template <typename T>
T number(int rank, std::int64_t i, std::uint64_t salt) {
  std::uint64_t bits = salt * 0x9e3779b97f4a7c15 +
                       static_cast<std::uint64_t>(rank) * 0xbf58476d1ce4e5b9 +
                       static_cast<std::uint64_t>(i) * 0x94d049bb133111eb;
  bits ^= bits >> 29;
  bits *= 0xbf58476d1ce4e5b9;
  bits ^= bits >> 32;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits);
  } else {
    const double fraction = static_cast<double>(bits % 2'000'001) / 1e6 - 1;
    const double value = std::ldexp(fraction, static_cast<int>((bits >> 40) % 24));
    if constexpr (std::is_same_v<T, Bf16>) {
      return to_bf16(static_cast<float>(value));
    } else {
      return static_cast<T>(value);
    }
  }
}

template <typename T>
std::vector<T> numbers(int rank, std::int64_t count, std::uint64_t salt) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = number<T>(rank, i, salt);
  return values;
}

/// One step of a chain, in what elements of T are added in.
template <typename W>
W combine(W a, W b, Reduce reduce) {
  if constexpr (std::is_floating_point_v<W>) {
    if (reduce != Reduce::kSum && std::isnan(a)) return a;
    if (reduce != Reduce::kSum && std::isnan(b)) return b;
  }
  if (reduce == Reduce::kMax) return a > b ? a : b;
  if (reduce == Reduce::kMin) return a < b ? a : b;
  if constexpr (std::is_integral_v<W>) {
    using U = std::make_unsigned_t<W>;
    return static_cast<W>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

/// ((values[0] op values[1]) op values[2]) ...; bf16 in f32, rounded once.
template <typename T>
T chain(const std::vector<T>& values, Reduce reduce) {
  if constexpr (std::is_same_v<T, Bf16>) {
    if (values.size() == 1) return values[0];
    float sum = to_f32(values[0]);
    for (std::size_t i = 1; i < values.size(); ++i) sum = combine(sum, to_f32(values[i]), reduce);
    return to_bf16(sum);
  } else {
    T sum = values[0];
    for (std::size_t i = 1; i < values.size(); ++i) sum = combine(sum, values[i], reduce);
    return sum;
  }
}

/// What a reduction over `ranks` of numbers() is at [begin, end), behind `before` where it is
/// given.
template <typename T>
std::vector<T> reduced(const std::vector<int>& ranks, std::int64_t begin, std::int64_t end,
                       std::uint64_t salt, Reduce reduce, const std::vector<T>* before = nullptr) {
  std::vector<T> result;
  for (std::int64_t i = begin; i < end; ++i) {
    std::vector<T> column;
    if (before != nullptr) column.push_back((*before)[static_cast<std::size_t>(i - begin)]);
    for (const int rank : ranks) column.push_back(number<T>(rank, i, salt));
    result.push_back(chain(column, reduce));
  }
  return result;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Ways to cut n elements for `size` ranks: even, uneven, the first or all but the last empty.
inline std::vector<std::vector<std::int64_t>> ways_to_cut(const Group& group, std::int64_t n) {
  std::vector<std::vector<std::int64_t>> ways{group.even_parts(n)};
  const int size = group.size();
  std::vector<std::int64_t> uneven{0}, late{0}, last{0};
  for (int rank = 1; rank < size; ++rank) {
    uneven.push_back(n * rank * rank / (size * size));
    late.push_back(n * (rank - 1) / size);
    last.push_back(0);
  }
  for (auto* parts : {&uneven, &late, &last}) {
    parts->push_back(n);
    ways.push_back(*parts);
  }
  return ways;
}

}  // namespace atl::comm::test
