#include "atoll/serve/grammar/token_masks.h"

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"

namespace atl::serve::grammar {

SharedMasks::SharedMasks(std::shared_ptr<const Grammar> grammar,
                         std::shared_ptr<const Vocabulary> vocabulary, std::size_t max_bytes)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), max_bytes_(max_bytes) {}

std::shared_ptr<LockedMasks> SharedMasks::current() {
  const std::lock_guard lock(mutex_);
  if (current_ == nullptr) current_ = std::make_shared<LockedMasks>(grammar_, vocabulary_);
  return current_;
}

std::shared_ptr<LockedMasks> SharedMasks::replacement(const std::shared_ptr<LockedMasks>& old) {
  bytes_ = old->table.bytes();
  if (bytes_ <= max_bytes_) return nullptr;
  const std::lock_guard lock(mutex_);
  if (current_ == old) current_ = std::make_shared<LockedMasks>(grammar_, vocabulary_);
  return current_;
}

GrammarConstraint::GrammarConstraint(std::shared_ptr<SharedMasks> masks,
                                     std::vector<std::int32_t> end_tokens)
    : shared_(std::move(masks)), masks_(shared_->current()), end_tokens_(std::move(end_tokens)) {
  const std::lock_guard lock(masks_->mutex);
  state_ = masks_->table.automaton().start();
  if (masks_->table.automaton().was_cut()) {
    throw user_error(
        "the grammar derives the beginning of a text in too many ways; write rules that may be "
        "empty "
        "so that they do not follow one another");
  }
}

void GrammarConstraint::mask(std::span<std::uint64_t> allowed) {
  const auto bit_of = [&](std::int32_t token) { return std::uint64_t{1} << (token % 64); };
  const auto word_of = [&](std::int32_t token) { return static_cast<std::size_t>(token) / 64; };
  const std::lock_guard lock(masks_->mutex);
  const TokenSet none;
  const TokenSet& next = has_ended_ ? none : masks_->table.tokens_after(state_);
  const bool may_end = has_ended_ || masks_->table.automaton().may_end(state_);
  // The words that are to stay, of few tokens.
  std::vector<std::pair<std::size_t, std::uint64_t>> kept;
  const auto keep = [&](std::int32_t token) {
    if (word_of(token) >= allowed.size()) return;
    kept.emplace_back(word_of(token), allowed[word_of(token)] & bit_of(token));
  };
  std::for_each(next.tokens.begin(), next.tokens.end(), keep);
  if (may_end) std::for_each(end_tokens_.begin(), end_tokens_.end(), keep);
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    allowed[i] &= i < next.bits.size() ? next.bits[i] : 0;
  }
  for (const auto& [word, bits] : kept) allowed[word] |= bits;
  for (const std::int32_t token : end_tokens_) {  // not even as a part of the text
    if (!may_end && word_of(token) < allowed.size()) allowed[word_of(token)] &= ~bit_of(token);
  }
}

void GrammarConstraint::accept(std::int32_t token) {
  const bool is_end = std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
  PortableState moved;
  std::shared_ptr<LockedMasks> next;
  {
    const std::lock_guard lock(masks_->mutex);
    if (has_ended_ || (is_end && masks_->table.automaton().may_end(state_))) {
      has_ended_ = true;
      return;
    }
    state_ = masks_->table.accept(state_, token);
    next = shared_->replacement(masks_);
    if (next == nullptr || next == masks_) return;
    moved = masks_->table.automaton().export_state(state_);
  }
  masks_ = std::move(next);
  const std::lock_guard lock(masks_->mutex);
  state_ = masks_->table.automaton().import_state(moved);
}

bool GrammarConstraint::is_over() const {
  if (has_ended_) return true;
  const std::lock_guard lock(masks_->mutex);
  return masks_->table.tokens_after(state_).empty();
}

}  // namespace atl::serve::grammar
