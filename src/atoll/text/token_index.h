#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::text {

/// The ids of tokens by their spelling. Open addressing with linear probing on a power of two, and
/// all spellings in one block: a vocabulary has 150,000 of them, and a node each was most of what a
/// tokenizer took to load.
class TokenIndex {
 public:
  /// Makes room for so many tokens of so many bytes together.
  void reserve(std::size_t tokens, std::size_t bytes);
  /// Returns false, and changes nothing, when the token is there already. Throws Error(kInternal)
  /// when the spellings have 4 GiB together.
  bool add(std::string_view token, std::int32_t id);
  /// The id of a token, or nothing.
  std::optional<std::int32_t> find(std::string_view token) const;
  std::size_t size() const { return size_; }

  /// Calls fn(token, id) for each, in no useful order.
  template <typename Fn>
  void for_each(Fn&& fn) const {
    for (const Slot& slot : slots_) {
      if (slot.begin != kEmpty) fn(spelling(slot), slot.id);
    }
  }

 private:
  static constexpr std::uint32_t kEmpty = ~std::uint32_t{0};
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t begin = kEmpty;  // in text_
    std::uint32_t size = 0;
    std::int32_t id = 0;
  };

  std::string_view spelling(const Slot& slot) const {
    return {text_.data() + slot.begin, slot.size};
  }
  /// Where the token is, or where it would go; there must be slots.
  std::size_t place(std::string_view token, std::uint32_t hash) const;
  void grow_to(std::size_t num_slots);

  std::string text_;
  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace atl::text
