#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace atl::compress {

/// The `count` largest of the keys, of equal ones the first: bit i % 64 of bitmap[i / 64] is 1
/// where keys[i] is one of them, and all bits behind the last key are 0. count <= keys.size().
void select_largest(std::span<const std::int32_t> keys, std::size_t count, std::uint64_t* bitmap);

/// fn(i) for each bit i of `words` words that is 1, ascending.
template <typename Fn>
void for_each_bit(const std::uint64_t* bitmap, std::size_t words, Fn fn) {
  for (std::size_t word = 0; word < words; ++word) {
    for (std::uint64_t left = bitmap[word]; left != 0; left &= left - 1) {
      fn(word * 64 + static_cast<std::size_t>(std::countr_zero(left)));
    }
  }
}

}  // namespace atl::compress
