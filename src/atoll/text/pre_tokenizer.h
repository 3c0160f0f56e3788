#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/byte_level.h"
#include "atoll/text/regex/regex.h"
#include "atoll/text/tokenizer_spec.h"
#include "atoll/text/unicode_scripts.h"
#include "atoll/text/utf8.h"

namespace atl::text {

/// Cuts text into the words that BPE never merges across.
class PreTokenizer {
 public:
  /// Compiles the patterns; see Regex for what is thrown. `origin` is the file's path.
  PreTokenizer(const std::vector<PreTokenizerStep>& steps, std::string_view origin);

  /// Calls emit(word) for each word of `piece`, in order; words are not empty, and are valid only
  /// during the call. For patterns a run of bytes that is not UTF-8 is a word of its own, and the
  /// text on either side of it is cut as if it stood alone.
  template <typename Emit>
  void for_each_word(std::string_view piece, RegexMatcher& matcher, Emit&& emit,
                     TextStart start = TextStart::kFirst) const {
    std::string changed;
    std::string spelled;
    Walk<Emit> walk{matcher, changed, spelled, start, piece.data(), emit};
    run(0, piece, walk);
  }

 private:
  using Behavior = PreTokenizerStep::Behavior;
  struct Step {
    PreTokenizerStep spec;
    std::optional<Regex> regex;
  };
  template <typename Emit>
  struct Walk {
    RegexMatcher& matcher;
    std::string& changed;  // the piece as the one step that changes text made it
    std::string& spelled;  // and as the one step that spells bytes did
    TextStart start;       // of what for_each_word was given
    const char* begin;     // where that begins
    Emit& emit;
  };

  template <typename Emit>
  void run(std::size_t step, std::string_view piece, Walk<Emit>& walk) const {
    using Kind = PreTokenizerStep::Kind;
    if (piece.empty()) return;
    if (step == steps_.size()) {
      walk.emit(piece);
    } else if (steps_[step].spec.kind == Kind::kPrefixSpace) {
      if (piece.front() != ' ' && start_of(piece, walk) != TextStart::kGoesOn) {
        walk.changed.assign(1, ' ').append(piece);
        piece = walk.changed;
      }
      run(step + 1, piece, walk);
    } else if (steps_[step].spec.kind == Kind::kMetaspace) {
      const PreTokenizerStep& spec = steps_[step].spec;
      escape_spaces(spec, piece, start_of(piece, walk), walk.changed);
      piece = walk.changed;
      while (spec.split && !piece.empty()) {
        const std::size_t next = piece.find(spec.pattern, 1);
        run(step + 1, piece.substr(0, next), walk);
        piece.remove_prefix(std::min(next, piece.size()));
      }
      run(step + 1, piece, walk);
    } else if (steps_[step].spec.kind == Kind::kByteLevel) {
      walk.spelled = to_byte_level(piece);
      run(step + 1, walk.spelled, walk);
    } else {
      split(step, piece, walk);
    }
  }

  template <typename Emit>
  static TextStart start_of(std::string_view piece, const Walk<Emit>& walk) {
    return piece.data() == walk.begin ? walk.start : TextStart::kAfterToken;
  }

  template <typename Emit>
  void split(std::size_t step, std::string_view piece, Walk<Emit>& walk) const {
    while (!piece.empty()) {
      const std::size_t valid = valid_utf8_prefix(piece);
      if (steps_[step].spec.kind == PreTokenizerStep::Kind::kScripts) {
        split_scripts(step, piece.substr(0, valid), walk);
      } else {
        split_valid(step, piece.substr(0, valid), walk);
      }
      piece.remove_prefix(valid);
      const std::size_t invalid = invalid_utf8_prefix(piece);
      run(step + 1, piece.substr(0, invalid), walk);
      piece.remove_prefix(invalid);
    }
  }

  template <typename Emit>
  void split_scripts(std::size_t step, std::string_view piece, Walk<Emit>& walk) const {
    std::vector<std::size_t> ends = script_starts(piece);
    ends.push_back(piece.size());
    for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
      run(step + 1, piece.substr(ends[i], ends[i + 1] - ends[i]), walk);
    }
  }

  // Matches and the gaps between them take turns; neighbours that belong together are one word.
  template <typename Emit>
  void split_valid(std::size_t step, std::string_view piece, Walk<Emit>& walk) const {
    const PreTokenizerStep& spec = steps_[step].spec;
    std::size_t begin = 0;
    std::size_t end = 0;
    bool was_match = false;
    const auto flush = [&] {
      if (was_match && spec.behavior == Behavior::kRemoved) return;
      run(step + 1, piece.substr(begin, end - begin), walk);
    };
    const auto add = [&](std::size_t upto, bool is_match) {
      if (upto == end) return;
      if (end > begin && !joins(spec.behavior, was_match, is_match)) {
        flush();
        begin = end;
      }
      end = upto;
      was_match = is_match;
    };
    std::size_t at = 0;
    while (at < piece.size()) {
      const auto match = walk.matcher.find(*steps_[step].regex, piece, at);
      add(match ? match->begin : piece.size(), spec.invert);
      if (!match) break;
      add(match->end, !spec.invert);
      at = match->end;
    }
    flush();
  }

  // Whether a match (or gap) is one word with the match (or gap) before it.
  static bool joins(Behavior behavior, bool was_match, bool is_match) {
    switch (behavior) {
      case Behavior::kMergedWithPrevious:
        return is_match && !was_match;
      case Behavior::kMergedWithNext:
        return was_match && !is_match;
      case Behavior::kContiguous:
        return was_match == is_match;
      default:
        return false;
    }
  }

  static void escape_spaces(const PreTokenizerStep& spec, std::string_view piece, TextStart start,
                            std::string& out);

  std::vector<Step> steps_;
};

}  // namespace atl::text
