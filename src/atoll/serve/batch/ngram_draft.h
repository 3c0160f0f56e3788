#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace atl::serve {

/// Guesses how a text goes on from what followed the same tokens in it before (prompt lookup,
/// Saxena 2023): for texts that quote, list or edit what they were given. What is guessed wrongly
/// costs the rows that a step has spare.
class NgramDraft {
 public:
  /// Tokens that must have been there before.
  static constexpr std::size_t kLength = 3;
  /// The most that are guessed at once.
  static constexpr std::size_t kMost = 7;

  /// The tokens that followed the last kLength ones of `tokens` when these came before, `most` of
  /// them at most; fewer while guesses were wrong lately. `tokens` must extend the
  /// sequence of the previous call.
  std::vector<std::int32_t> guess(std::span<const std::int32_t> tokens, std::size_t most);
  /// How many of a guess were right.
  void learn(std::size_t guessed, std::size_t right);

 private:
  std::unordered_map<std::uint64_t, std::size_t> ends_;  // by the hash of kLength tokens
  std::size_t indexed_ = 0;                              // tokens whose ends are there
  std::size_t allowed_ = 2;                              // of the next guess
  std::size_t pause_ = 0;                                // calls until there is one again
  std::size_t next_pause_ = 1;
};

}  // namespace atl::serve
