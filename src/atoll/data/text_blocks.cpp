#include "atoll/data/text_blocks.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::data {

namespace {

constexpr std::string_view kWhite = " \t\r\n\v\f";

bool is_white(char c) {
  return kWhite.find(c) != std::string_view::npos;
}

}  // namespace

std::size_t block_length(std::string_view text, std::size_t block_bytes) {
  ATOLL_CHECK(block_bytes >= 4, "a block of {} bytes", block_bytes);
  if (text.size() <= block_bytes) return text.size();
  const std::string_view block = text.substr(0, block_bytes);
  // White space at the start of a line can join the line end before it into one token; a cut there
  // would give tokens that the whole text does not have.
  std::size_t any_line = 0;
  for (std::size_t end = block.rfind('\n'); end != std::string_view::npos;
       end = end == 0 ? std::string_view::npos : block.rfind('\n', end - 1)) {
    if (!is_white(text[end + 1])) return end + 1;
    any_line = std::max(any_line, end + 1);
  }
  if (any_line > 0) return any_line;
  const std::size_t space = block.rfind(' ');
  if (space != std::string_view::npos && space > 0) return space;
  std::size_t length = block_bytes;
  const auto continues = [&](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  for (int i = 0; i < 3 && continues(length); ++i) --length;
  return continues(length) ? block_bytes : length;  // not UTF-8: cut anywhere
}

bool HeldOutStride::take(std::size_t block_bytes) {
  const auto bytes = static_cast<double>(block_bytes);
  owed_bytes_ += fraction_ * bytes;
  if (owed_bytes_ < bytes / 2 || fraction_ <= 0) return false;
  owed_bytes_ -= bytes;
  return true;
}

}  // namespace atl::data
