#pragma once

// Strings that tokenizers find hard, the same as tools/golden/awkward_strings.py makes.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace atl::text::testing {

/// Where the fixtures are.
std::filesystem::path testdata();

/// SplitMix64 (Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators").
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  /// A number below `n`.
  std::uint64_t below(std::uint64_t n) {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return (z ^ (z >> 31)) % n;
  }

 private:
  std::uint64_t state_;
};

/// `count` strings, some of them not UTF-8: none, each fragment of testdata/fragments.json alone,
/// then random runs.
std::vector<std::string> awkward_strings(std::size_t count, std::uint64_t seed);

/// `raw` with U+FFFD for each maximal part that is not UTF-8.
std::string lossy(std::string_view raw);

/// FNV-1a (64 bits) of a block of byte strings, each followed by its length, as 16 digits.
class BlockHash {
 public:
  void add(std::string_view bytes);
  std::string digest() const;

 private:
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

/// Ids as they are hashed: four bytes each, little-endian.
std::string id_bytes(const std::vector<std::int32_t>& ids);

}  // namespace atl::text::testing
