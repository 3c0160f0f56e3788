#include "atoll/text/unicode_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace atl::text {

namespace {

struct ClassRange {
  char32_t first;
  char32_t last;
};

#include "atoll/text/unicode_classes.inc"

std::span<const ClassRange> ranges_of(CharClass char_class) {
  switch (char_class) {
    case CharClass::kWord:
      return kWordRanges;
    case CharClass::kPunctuation:
      return kPunctuationRanges;
    case CharClass::kAccent:
      return kAccentRanges;
    case CharClass::kBertAccent:
      return kBertAccentRanges;
    case CharClass::kControl:
      return kControlRanges;
    case CharClass::kBertSpace:
      return kBertSpaceRanges;
    case CharClass::kChinese:
      return kChineseRanges;
    case CharClass::kNmtRemoved:
      return kNmtRemovedRanges;
    case CharClass::kNmtSpace:
      return kNmtSpaceRanges;
  }
  return {};
}

}  // namespace

bool is_of_class(char32_t code_point, CharClass char_class) {
  const std::span<const ClassRange> ranges = ranges_of(char_class);
  const auto range = std::lower_bound(ranges.begin(), ranges.end(), code_point,
                                      [](const ClassRange& r, char32_t c) { return r.last < c; });
  return range != ranges.end() && range->first <= code_point;
}

std::string regex_ranges(CharClass char_class) {
  std::string text;
  for (const auto& [first, last] : ranges_of(char_class)) {
    text += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<std::uint32_t>(first),
                        static_cast<std::uint32_t>(last));
  }
  return text;
}

}  // namespace atl::text
