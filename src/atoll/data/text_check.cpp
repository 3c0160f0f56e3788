#include "atoll/data/text_check.h"

#include <algorithm>
#include <array>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/text_encoding.h"
#include "atoll/text/utf8.h"

namespace atl::data {

namespace fs = std::filesystem;

namespace {

struct TextFault {
  std::size_t byte = 0;  // from 0
  std::int64_t line = 0;
  const char* what = "";
  const char* remedy = "";
};

// What of some bytes no text has, if there is such.
std::optional<TextFault> find_text_fault(std::string_view content) {
  const std::size_t nul = std::min(content.find('\0'), content.size());
  const std::size_t byte = text::valid_utf8_prefix(content.substr(0, nul));
  if (byte == content.size()) return std::nullopt;
  const auto line =
      1 + std::count(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(byte), '\n');
  if (byte < nul) {
    return TextFault{byte, line, "is not UTF-8",
                     "write it as UTF-8, e.g. iconv -f LATIN1 -t UTF-8, or take those bytes out"};
  }
  return TextFault{byte, line, "has a NUL byte",
                   "take it out, or, where the text is UTF-16, write it as UTF-8: iconv -f UTF-16 "
                   "-t UTF-8"};
}

}  // namespace

void check_is_text(const fs::path& path, std::string_view content) {
  using namespace std::string_view_literals;
  struct Known {
    std::string_view magic;  // what the file begins with
    std::string_view what;
    std::string_view remedy;
  };
  constexpr std::array<Known, 11> kKnown = {{
      {"\x1f\x8b"sv, "compressed with gzip", "decompress it first: gunzip -k"},
      {"\x28\xb5\x2f\xfd"sv, "compressed with zstd", "decompress it first: zstd -d"},
      {"BZh"sv, "compressed with bzip2", "decompress it first: bunzip2 -k"},
      {"\xfd"
       "7zXZ"sv,
       "compressed with xz", "decompress it first: unxz -k"},
      {"PK\x03\x04"sv, "a zip archive", "unpack it first"},
      {"PAR1"sv, "a Parquet file", "write its rows as JSONL, one object a line"},
      {"ARROW1"sv, "an Arrow file", "write its rows as JSONL, one object a line"},
      {"\x89HDF"sv, "an HDF5 file", "write its rows as JSONL, one object a line"},
      {"GGUF"sv, "a model in a GGUF file", "give text"},
      {"%PDF-"sv, "a PDF", "get the text out of it first: pdftotext"},
      {"version https://git-lfs"sv, "a pointer of git-lfs", "get the file itself: git lfs pull"},
  }};
  for (const auto& [magic, what, remedy] : kKnown) {
    if (content.starts_with(magic)) throw user_error("{} is {}; {}", path.string(), what, remedy);
  }
  refuse_utf16(path, content);
  if (const auto fault = find_text_fault(content)) {
    throw user_error("{} line {} {} (byte {} of the file); {}", path.string(), fault->line,
                     fault->what, fault->byte, fault->remedy);
  }
  if (path.extension() != ".json") return;
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || (content[first] != '[' && content[first] != '{')) return;
  throw user_error(
      "{} is JSON, which would be learnt as it is spelled; write one object a line into a .jsonl "
      "file{}, or call it .txt if that is what you want",
      path.string(), content[first] == '[' ? " (jq -c '.[]' does)" : "");
}

}  // namespace atl::data
