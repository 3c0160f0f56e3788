#include "atoll/text/sentence_piece/charsmap.h"

#include "atoll/base/error.h"

namespace atl::text {

namespace {

// The longest in Unicode's compatibility mappings has 33 bytes (U+FDFA).
constexpr std::size_t kMaxReplacement = 1024;

std::uint32_t little_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The parts of a unit of the array.
bool has_value(std::uint32_t unit) {
  return ((unit >> 8) & 1) != 0;
}
std::uint32_t value_of(std::uint32_t unit) {
  return unit & 0x7FFFFFFFU;
}
std::uint32_t label_of(std::uint32_t unit) {
  return unit & 0x800000FFU;
}
std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200U) >> 6);
}

}  // namespace

CharsMap::CharsMap(std::string_view blob, std::string_view origin)
    : origin_(fmt::format("{}: precompiled_charsmap", origin)) {
  if (blob.empty()) return;
  const std::size_t size = blob.size() < 4 ? 0 : little_endian(blob);
  if (size == 0 || size % 4 != 0 || size > blob.size() - 4) {
    throw damaged_error("{}: a trie of {} bytes in a map of {}", origin_, size, blob.size());
  }
  for (std::size_t at = 4; at < 4 + size; at += 4) {
    units_.push_back(little_endian(blob.substr(at, 4)));
  }
  replacements_ = blob.substr(4 + size);
}

CharsMap::Rule CharsMap::longest(std::string_view text) const {
  return find(text, true);
}

CharsMap::Rule CharsMap::shortest(std::string_view text) const {
  return find(text, false);
}

CharsMap::Rule CharsMap::find(std::string_view text, bool longest) const {
  Rule rule;
  if (units_.empty()) return rule;
  std::uint32_t value = 0;
  std::uint32_t node = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::uint32_t byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const bool ends = has_value(units_[node]);
    node ^= offset_of(units_[node]);
    if (!ends) continue;
    if (node >= units_.size()) throw damaged_error("{}: the trie points outside itself", origin_);
    rule.size = i + 1;
    value = value_of(units_[node]);
    if (!longest) break;
  }
  if (rule.size == 0) return rule;
  if (value >= replacements_.size()) {
    throw damaged_error("{}: a replacement at byte {} of {}", origin_, value, replacements_.size());
  }
  const std::string_view rest = std::string_view(replacements_).substr(value);
  rule.replacement = rest.substr(0, rest.find('\0'));
  if (rule.replacement.size() > kMaxReplacement) {
    throw damaged_error("{}: a replacement of more than {} bytes", origin_, kMaxReplacement);
  }
  return rule;
}

}  // namespace atl::text
