#include "atoll/serve/grammar/regex_tree.h"

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::serve::grammar {

namespace {

RegexPart any_text() {
  RegexPart result{.kind = RegexPart::kRepeat, .min = 0, .max = kUnbounded};
  result.parts.push_back({.kind = RegexPart::kCharacter, .set = CharacterSet::all()});
  return result;
}

RegexPart pair(RegexPart first, RegexPart second) {
  RegexPart result{.kind = RegexPart::kSequence};
  result.parts.push_back(std::move(first));
  result.parts.push_back(std::move(second));
  return result;
}

// Replaces `anchor` where it stands at the end of a part that is the whole text's. At an end
// without it any text may come, in a search.
void resolve_end(RegexPart& part, RegexPart::Kind anchor, bool is_search) {
  const bool at_begin = anchor == RegexPart::kBegin;
  if (part.kind == anchor) {
    part = {.kind = RegexPart::kSequence};
  } else if (part.kind == RegexPart::kChoice) {
    for (RegexPart& inner : part.parts) resolve_end(inner, anchor, is_search);
  } else if (part.kind == RegexPart::kSequence && !part.parts.empty()) {
    resolve_end(at_begin ? part.parts.front() : part.parts.back(), anchor, is_search);
  } else if (is_search) {
    part = at_begin ? pair(any_text(), std::move(part)) : pair(std::move(part), any_text());
  }
}

bool has_anchor(const RegexPart& part) {
  return part.kind == RegexPart::kBegin || part.kind == RegexPart::kEnd ||
         std::any_of(part.parts.begin(), part.parts.end(), has_anchor);
}

constexpr std::int64_t kMostCharacters = std::int64_t{1} << 40;

std::int64_t capped_sum(std::int64_t a, std::int64_t b) {
  if (a == kUnbounded || b == kUnbounded) return kUnbounded;
  return std::min(a + b, kMostCharacters);
}

std::int64_t capped_product(std::int64_t a, std::int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (a == kUnbounded || b == kUnbounded) return kUnbounded;
  return a > kMostCharacters / b ? kMostCharacters : a * b;
}

}  // namespace

// An anchor in front of the other end, as in `$`, leaves an end that is the text's too: the second
// pass finds it where the first has put any text before it.
RegexPart resolve_anchors(RegexPart part, bool is_search, std::string_view origin) {
  resolve_end(part, RegexPart::kBegin, is_search);
  resolve_end(part, RegexPart::kEnd, is_search);
  if (has_anchor(part)) {
    throw user_error("{}: ^ and $ are supported at the ends alone", origin);
  }
  return part;
}

RegexLength regex_length(const RegexPart& part) {
  if (part.kind == RegexPart::kCharacter) return {1, 1};
  RegexLength result;
  bool is_first = true;
  for (const RegexPart& inner : part.parts) {
    const RegexLength length = regex_length(inner);
    if (part.kind == RegexPart::kRepeat) {
      return {capped_product(length.min, part.min), capped_product(length.max, part.max)};
    }
    if (part.kind == RegexPart::kSequence) {
      result = {capped_sum(result.min, length.min), capped_sum(result.max, length.max)};
    } else if (is_first) {
      result = length;
    } else {
      const bool is_bounded = result.max != kUnbounded && length.max != kUnbounded;
      result = {std::min(result.min, length.min),
                is_bounded ? std::max(result.max, length.max) : std::int64_t{kUnbounded}};
    }
    is_first = false;
  }
  return result;
}

bool limit_regex(RegexPart& part, std::int64_t min, std::int64_t max) {
  const RegexLength length = regex_length(part);
  const bool is_short = max == kUnbounded || (length.max != kUnbounded && length.max <= max);
  if (length.min >= min && is_short) return true;
  if (part.kind == RegexPart::kRepeat) {
    const RegexLength inner = regex_length(part.parts.front());
    if (inner.min != 1 || inner.max != 1) return false;
    const std::int64_t least = std::max(part.min, min);
    const std::int64_t most = max == kUnbounded        ? part.max
                              : part.max == kUnbounded ? max
                                                       : std::min(part.max, max);
    if (most != kUnbounded && most < least) return false;
    part.min = least;
    part.max = most;
    return true;
  }
  if (part.kind == RegexPart::kChoice) {
    RegexPart copy = part;
    for (RegexPart& inner : copy.parts) {
      if (!limit_regex(inner, min, max)) return false;
    }
    part = std::move(copy);
    return true;
  }
  if (part.kind != RegexPart::kSequence) return false;
  // All parts but one have a fixed length.
  RegexPart* variable = nullptr;
  std::int64_t fixed = 0;
  for (RegexPart& inner : part.parts) {
    const RegexLength inside = regex_length(inner);
    if (inside.min == inside.max) {
      fixed += inside.min;
    } else if (variable == nullptr) {
      variable = &inner;
    } else {
      return false;
    }
  }
  if (variable == nullptr || (max != kUnbounded && max < fixed)) return false;
  return limit_regex(*variable, std::max<std::int64_t>(min - fixed, 0),
                     max == kUnbounded ? max : max - fixed);
}

}  // namespace atl::serve::grammar
