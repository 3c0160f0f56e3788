#include "atoll/base/files/text_encoding.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/json.h"

namespace atl {

namespace {

using namespace std::string_view_literals;

constexpr std::size_t kLookedAt = 4096;

// The encoding that iconv is to be told; empty when it is none of these.
std::string_view wide_encoding(std::string_view content) {
  // Longer marks first: that of UTF-32LE begins like that of UTF-16LE.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kMarks = {
      {{"\xff\xfe\0\0"sv, "UTF-32"},
       {"\0\0\xfe\xff"sv, "UTF-32"},
       {"\xff\xfe"sv, "UTF-16"},
       {"\xfe\xff"sv, "UTF-16"}}};
  for (const auto& [mark, name] : kMarks) {
    if (content.starts_with(mark)) return name;
  }
  content = content.substr(0, kLookedAt);
  const std::size_t pairs = content.size() / 2;
  constexpr std::size_t kFewest = 8;
  if (pairs < kFewest) return "";
  std::size_t low = 0, high = 0;  // zeros that are first in their pair, and second
  for (std::size_t i = 0; i < pairs; ++i) {
    low += content[2 * i] == '\0' ? 1 : 0;
    high += content[2 * i + 1] == '\0' ? 1 : 0;
  }
  const auto most = [pairs](std::size_t count) { return count * 10 >= pairs * 9; };
  if (most(high) && low == 0) return "UTF-16LE";
  if (most(low) && high == 0) return "UTF-16BE";
  return "";
}

}  // namespace

void refuse_utf16(const std::filesystem::path& path, std::string_view content) {
  const std::string_view encoding = wide_encoding(content);
  if (encoding.empty()) return;
  throw user_error("{} is {} text, and atoll reads UTF-8; convert it: iconv -f {} -t UTF-8 {} >{}",
                   path.string(), encoding, encoding, path.string(),
                   path.stem().string() + "-utf8" + path.extension().string());
}

std::string_view without_byte_order_mark(std::string_view content) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return content.starts_with(kMark) ? content.substr(kMark.size()) : content;
}

std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  std::string text = read_file(path, max_bytes);
  refuse_utf16(path, text);
  return std::string(without_byte_order_mark(text));
}

std::string utf8_problem(const std::string& text) {
  try {
    nlohmann::json(text).dump();  // which checks it
    return "";
  } catch (const nlohmann::json::exception& error) {
    return json_reason(error);
  }
}

}  // namespace atl
