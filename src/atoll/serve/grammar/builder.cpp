#include "atoll/serve/grammar/builder.h"

#include <algorithm>
#include <map>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::serve::grammar {

namespace {

ByteSet set_of(const ByteRange& range) {
  ByteSet set;
  for (int byte = range.first; byte <= range.last; ++byte) set.set(static_cast<std::size_t>(byte));
  return set;
}

}  // namespace

GrammarBuilder::GrammarBuilder(std::string origin, const GrammarLimits& limits)
    : origin_(std::move(origin)), limits_(limits) {}

Node GrammarBuilder::add(GrammarPart part) {
  if (static_cast<std::int64_t>(parts_.size()) >= limits_.max_nodes) {
    throw user_error("{}: a grammar of more than {} parts; ask for a simpler one", origin_,
                     limits_.max_nodes);
  }
  parts_.push_back(std::move(part));
  return static_cast<Node>(parts_.size() - 1);
}

Node GrammarBuilder::empty() {
  return sequence({});
}

Node GrammarBuilder::bytes(const ByteSet& set) {
  return add({.kind = GrammarPart::kBytes, .set = set});
}

Node GrammarBuilder::literal(std::string_view bytes) {
  std::vector<Node> parts;
  for (const char c : bytes) {
    parts.push_back(this->bytes(ByteSet().set(static_cast<unsigned char>(c))));
  }
  return sequence(std::move(parts));
}

// Characters whose bytes behind the first are of the same ranges become one alternative.
Node GrammarBuilder::character(const CharacterSet& set) {
  const auto before = [](const ByteRanges& a, const ByteRanges& b) {
    return std::lexicographical_compare(
        a.begin(), a.end(), b.begin(), b.end(), [](const ByteRange& x, const ByteRange& y) {
          return std::pair(x.first, x.last) < std::pair(y.first, y.last);
        });
  };
  std::map<ByteRanges, ByteSet, decltype(before)> first_bytes(before);
  for (ByteRanges& ranges : utf8_ranges(set)) {
    const ByteSet first = set_of(ranges.front());
    ranges.erase(ranges.begin());
    first_bytes[ranges] |= first;
  }
  std::vector<Node> alternatives;
  for (const auto& [ranges, first] : first_bytes) {
    std::vector<Node> parts = {bytes(first)};
    for (const ByteRange& range : ranges) parts.push_back(bytes(set_of(range)));
    alternatives.push_back(sequence(std::move(parts)));
  }
  return choice(std::move(alternatives));
}

Node GrammarBuilder::sequence(std::vector<Node> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = GrammarPart::kSequence, .parts = std::move(parts)});
}

Node GrammarBuilder::choice(std::vector<Node> alternatives) {
  if (alternatives.size() == 1) return alternatives.front();
  return add({.kind = GrammarPart::kChoice, .parts = std::move(alternatives)});
}

Node GrammarBuilder::one_of(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? nothing() : text_tree(texts, 0, texts.size(), 0);
}

// Texts [begin, end) are sorted, differ, and share their first `depth` bytes.
Node GrammarBuilder::text_tree(const std::vector<std::string>& texts, std::size_t begin,
                               std::size_t end, std::size_t depth) {
  const std::string& first = texts[begin];
  const std::string& last = texts[end - 1];
  std::size_t shared = depth;
  while (shared < first.size() && shared < last.size() && first[shared] == last[shared]) ++shared;
  const Node prefix = literal(std::string_view(first).substr(depth, shared - depth));
  if (end - begin == 1) return prefix;
  std::vector<Node> rests;
  std::size_t at = begin;
  if (first.size() == shared) {
    rests.push_back(empty());
    ++at;
  }
  while (at < end) {
    std::size_t next = at + 1;
    while (next < end && texts[next][shared] == texts[at][shared]) ++next;
    rests.push_back(text_tree(texts, at, next, shared));
    at = next;
  }
  return sequence({prefix, choice(std::move(rests))});
}

Node GrammarBuilder::repeat(Node part, std::int64_t min, std::int64_t max) {
  ATOLL_CHECK(min >= 0 && (max == kUnbounded || min <= max), "{} to {} times", min, max);
  if (min > limits_.max_repeat || max > limits_.max_repeat) {
    throw user_error("{}: a repetition of {} times; {} is the most", origin_, std::max(min, max),
                     limits_.max_repeat);
  }
  return add({.kind = GrammarPart::kRepeat,
              .min = static_cast<std::int32_t>(min),
              .max = static_cast<std::int32_t>(max),
              .parts = {part}});
}

Node GrammarBuilder::declare(std::string name) {
  return add({.kind = GrammarPart::kRule, .name = std::move(name)});
}

void GrammarBuilder::define(Node rule, Node content) {
  GrammarPart& part = parts_[static_cast<std::size_t>(rule)];
  ATOLL_CHECK(part.kind == GrammarPart::kRule && part.parts.empty(), "rule {} is defined twice",
              part.name);
  part.parts = {content};
}

bool GrammarBuilder::is_defined(Node rule) const {
  return !parts_[static_cast<std::size_t>(rule)].parts.empty();
}

}  // namespace atl::serve::grammar
