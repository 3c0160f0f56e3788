#include "atoll/text/utf8.h"

#include <cstring>

#include "atoll/base/check.h"

namespace atl::text {

namespace {

struct Lead {
  std::size_t size;         // of the whole character; 0 when the byte starts none
  unsigned char low, high;  // bounds of the second byte
};

Lead classify(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  ATOLL_DCHECK(!bytes.empty(), "no bytes");
  Lead lead = classify(static_cast<unsigned char>(bytes[0]));
  if (lead.size == 0) return {1, Utf8Kind::kInvalid};
  for (std::size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {i, Utf8Kind::kIncomplete};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < lead.low || byte > lead.high) return {i, Utf8Kind::kInvalid};
    lead.low = 0x80;
    lead.high = 0xBF;
  }
  return {lead.size, Utf8Kind::kValid};
}

std::size_t valid_utf8_prefix(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::uint64_t word = 0;
    if (bytes.size() - at >= sizeof(word)) {  // eight ASCII bytes at a time
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      if ((word & 0x8080808080808080U) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const Utf8Step step = utf8_step(bytes.substr(at));
    if (step.kind != Utf8Kind::kValid) break;
    at += step.size;
  }
  return at;
}

std::size_t invalid_utf8_prefix(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Step step = utf8_step(bytes.substr(at));
    if (step.kind == Utf8Kind::kValid) break;
    at += step.size;
  }
  return at;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

char32_t decode_utf8(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  if (bytes.size() == 1) return lead;
  char32_t code_point = lead & (0x7FU >> bytes.size());
  for (std::size_t i = 1; i < bytes.size(); ++i) {
    code_point = (code_point << 6) | (static_cast<unsigned char>(bytes[i]) & 0x3FU);
  }
  return code_point;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::size_t leading_white_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Kind::kValid) break;
    if (!is_white_space(decode_utf8(text.substr(at, step.size)))) break;
    at += step.size;
  }
  return at;
}

std::size_t trailing_white_space(std::string_view text, std::size_t limit) {
  std::size_t end = text.size();
  while (end > limit) {
    std::size_t begin = end - 1;
    while (begin > limit && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    const std::string_view last = text.substr(begin, end - begin);
    const Utf8Step step = utf8_step(last);
    const bool whole = step.kind == Utf8Kind::kValid && step.size == last.size();
    if (!whole || !is_white_space(decode_utf8(last))) break;
    end = begin;
  }
  return end;
}

}  // namespace atl::text
