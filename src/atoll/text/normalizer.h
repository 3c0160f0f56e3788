#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/regex/regex.h"
#include "atoll/text/sentence_piece/charsmap.h"
#include "atoll/text/tokenizer_spec.h"

namespace atl::text {

/// What is done to the text before it is cut into words. Bytes that are not UTF-8 stay as they are,
/// and stop characters from combining, and patterns from matching, across them.
class Normalizer {
 public:
  /// Compiles the patterns; see Regex for what is thrown. `origin` is the file's path.
  Normalizer(const std::vector<NormalizerStep>& steps, std::string_view origin);

  /// The normalized text: `piece` itself when nothing changes, else a view of `buffer`.
  std::string_view apply(std::string_view piece, RegexMatcher& matcher, std::string& buffer,
                         TextStart start = TextStart::kFirst) const;

 private:
  struct Step {
    NormalizerStep spec;
    std::optional<Regex> regex;   // of a replacement
    std::optional<CharsMap> map;  // of kCharsMap
  };
  static std::string run(const Step& step, std::string_view piece, RegexMatcher& matcher,
                         TextStart start);

  std::vector<Step> steps_;
  bool only_forms_ = true;  // then ASCII text stays as it is
};

}  // namespace atl::text
