#include "atoll/text/token_index.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"

namespace atl::text {

namespace {

constexpr std::size_t kFewestSlots = 16;

std::uint32_t hash_of(std::string_view token) {
  return static_cast<std::uint32_t>(XXH3_64bits(token.data(), token.size()));
}

}  // namespace

void TokenIndex::reserve(std::size_t tokens, std::size_t bytes) {
  text_.reserve(bytes);
  std::size_t slots = std::max(slots_.size(), kFewestSlots);
  while (3 * slots < 4 * tokens) slots *= 2;
  if (slots > slots_.size()) grow_to(slots);
}

bool TokenIndex::add(std::string_view token, std::int32_t id) {
  if (4 * (size_ + 1) > 3 * slots_.size()) grow_to(std::max(2 * slots_.size(), kFewestSlots));
  const std::uint32_t hash = hash_of(token);
  Slot& slot = slots_[place(token, hash)];
  if (slot.begin != kEmpty) return false;
  ATOLL_CHECK(token.size() < kEmpty - text_.size(), "tokens of 4 GiB");
  slot = {.hash = hash,
          .begin = static_cast<std::uint32_t>(text_.size()),
          .size = static_cast<std::uint32_t>(token.size()),
          .id = id};
  text_ += token;
  ++size_;
  return true;
}

std::optional<std::int32_t> TokenIndex::find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[place(token, hash_of(token))];
  return slot.begin == kEmpty ? std::nullopt : std::optional(slot.id);
}

std::size_t TokenIndex::place(std::string_view token, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.begin == kEmpty || (slot.hash == hash && spelling(slot) == token)) return i;
  }
}

void TokenIndex::grow_to(std::size_t num_slots) {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(num_slots));
  const std::size_t mask = num_slots - 1;
  for (const Slot& slot : old) {
    if (slot.begin == kEmpty) continue;
    std::size_t i = slot.hash & mask;
    while (slots_[i].begin != kEmpty) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

}  // namespace atl::text
