#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "atoll/text/pair_map.h"

namespace atl::text {

/// Strings of bytes, each with a number, found by their prefixes. One hash map of all edges: a node
/// costs 16 to 48 bytes, whatever its fan-out.
class ByteTrie {
 public:
  /// Where the walk along a string starts.
  static constexpr std::int32_t kRoot = 0;

  /// Adds a string, which must not be empty; the last number given to a string holds.
  void insert(std::string_view key, std::int32_t value) {
    std::int32_t node = kRoot;
    for (const char c : key) {
      std::int32_t& next = edges_[{node, static_cast<unsigned char>(c)}];
      if (next == 0) {
        next = static_cast<std::int32_t>(values_.size());
        values_.push_back(-1);
      }
      node = next;
    }
    values_[node] = value;
  }

  bool empty() const { return values_.size() == 1; }

  /// The node that `byte` leads to, or -1.
  std::int32_t step(std::int32_t node, char byte) const {
    const std::int32_t* next = edges_.find({node, static_cast<unsigned char>(byte)});
    return next == nullptr ? -1 : *next;
  }
  /// The number of the string that ends here, or -1.
  std::int32_t value(std::int32_t node) const { return values_[node]; }

  /// The length of the longest string that `text` starts with; 0: none.
  std::size_t longest_prefix(std::string_view text) const {
    std::size_t longest = 0;
    std::int32_t node = kRoot;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = step(node, text[i]);
      if (node < 0) break;
      if (values_[node] >= 0) longest = i + 1;
    }
    return longest;
  }

 private:
  PairMap<std::int32_t> edges_;
  std::vector<std::int32_t> values_ = {-1};
};

}  // namespace atl::text
