#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/regex.h"
#include "atoll/text/tokenizer_spec.h"
#include "atoll/text/utf8.h"

namespace atl::text {

/// Cuts text into the words that BPE never merges across.
class PreTokenizer {
 public:
  /// Compiles the patterns; see Regex for what is thrown. `origin` is the file's path.
  PreTokenizer(const std::vector<PreTokenizerStep>& steps, std::string_view origin);

  /// Calls emit(word) for each word of `piece`, in order; words are not empty, and are valid only
  /// during the call. A run of bytes that is not UTF-8 is a word of its own, and the text on either
  /// side of it is cut as if it stood alone.
  template <typename Emit>
  void for_each_word(std::string_view piece, RegexMatcher& matcher, Emit&& emit) const {
    std::string prefixed;
    run(0, piece, matcher, prefixed, emit);
  }

 private:
  struct Step {
    PreTokenizerStep::Kind kind;
    bool invert;
    std::optional<Regex> regex;
  };

  template <typename Emit>
  void run(std::size_t step, std::string_view piece, RegexMatcher& matcher, std::string& prefixed,
           Emit& emit) const {
    if (piece.empty()) return;
    if (step == steps_.size()) {
      emit(piece);
    } else if (steps_[step].kind == PreTokenizerStep::Kind::kPrefixSpace) {
      if (piece.front() != ' ') {
        prefixed.assign(1, ' ').append(piece);
        piece = prefixed;
      }
      run(step + 1, piece, matcher, prefixed, emit);
    } else {
      split(step, piece, matcher, prefixed, emit);
    }
  }

  template <typename Emit>
  void split(std::size_t step, std::string_view piece, RegexMatcher& matcher, std::string& prefixed,
             Emit& emit) const {
    while (!piece.empty()) {
      const std::size_t valid = valid_utf8_prefix(piece);
      split_valid(step, piece.substr(0, valid), matcher, prefixed, emit);
      piece.remove_prefix(valid);
      const std::size_t invalid = invalid_utf8_prefix(piece);
      run(step + 1, piece.substr(0, invalid), matcher, prefixed, emit);
      piece.remove_prefix(invalid);
    }
  }

  template <typename Emit>
  void split_valid(std::size_t step, std::string_view piece, RegexMatcher& matcher,
                   std::string& prefixed, Emit& emit) const {
    const bool removes = steps_[step].kind == PreTokenizerStep::Kind::kSplitRemove;
    const bool keep_matches = !removes || steps_[step].invert;
    const bool keep_gaps = !removes || !steps_[step].invert;
    std::size_t at = 0;
    while (at < piece.size()) {
      const auto match = matcher.find(*steps_[step].regex, piece, at);
      const std::size_t gap_end = match ? match->begin : piece.size();
      if (keep_gaps) run(step + 1, piece.substr(at, gap_end - at), matcher, prefixed, emit);
      if (!match) return;
      if (keep_matches) {
        run(step + 1, piece.substr(gap_end, match->end - gap_end), matcher, prefixed, emit);
      }
      at = match->end;
    }
  }

  std::vector<Step> steps_;
};

}  // namespace atl::text
