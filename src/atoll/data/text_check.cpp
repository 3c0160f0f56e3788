#include "atoll/data/text_check.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/data/input_format.h"
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

// How to make JSON lines of a table.
std::string rows_as_jsonl(const fs::path& path, char separator) {
  return fmt::format(
      "to learn its columns write its rows as JSON lines: python3 -c \"import csv,json,sys; "
      "[print(json.dumps(r)) for r in csv.DictReader(sys.stdin{})]\" <{} >{}.jsonl",
      separator == '\t' ? ", delimiter='\\t'" : "", path.string(), path.stem().string());
}

void refuse_json(const fs::path& path, std::string_view content) {
  const std::string_view text = without_byte_order_mark(content);
  const std::size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const bool is_list = text.substr(first).starts_with('[');
  const bool is_named =
      ending_of(path) == ".json" && (is_list || text.substr(first).starts_with('{'));
  if (!is_named && !begins_like_json(content)) return;
  throw user_error(
      "{} is JSON, and its first line is no whole object; write one object a line: jq -c '{}' {} "
      ">{}.jsonl",
      path.string(), is_list ? ".[]" : ".", path.string(), path.stem().string());
}

void refuse_markup(const fs::path& path) {
  struct Kind {
    std::string_view ending;
    const char* name;
    const char* remedy;
  };
  constexpr const char* kTakeOut = "take the text out of it first";
  constexpr const char* kRows = "write its rows as JSON lines";
  constexpr std::array<Kind, 7> kKinds = {{{".html", "HTML", kTakeOut},
                                           {".htm", "HTML", kTakeOut},
                                           {".xhtml", "HTML", kTakeOut},
                                           {".xml", "XML", kTakeOut},
                                           {".yaml", "YAML", kRows},
                                           {".yml", "YAML", kRows},
                                           {".tsv", "TSV", nullptr}}};
  const std::string ending = ending_of(path);
  const auto refuse = [&](const char* name, const std::string& remedy) {
    throw user_error(
        "{} is {}, which would be learnt as it is spelled; {}; or call it .txt if that is what you "
        "want",
        path.string(), name, remedy);
  };
  if (ending == ".csv") refuse("CSV", rows_as_jsonl(path, ','));
  for (const Kind& kind : kKinds) {
    if (ending != kind.ending) continue;
    refuse(kind.name, kind.remedy != nullptr ? kind.remedy : rows_as_jsonl(path, '\t'));
  }
}

bool begins_like_html(std::string_view content) {
  content.remove_prefix(std::min(content.find_first_not_of(" \t\r\n"), content.size()));
  std::string begin(content.substr(0, 14));
  std::transform(begin.begin(), begin.end(), begin.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return begin == "<!doctype html" || begin.starts_with("<html>") || begin.starts_with("<html ");
}

// What separates the columns of a text whose first lines have as many of it each; 0 for another.
// Two columns could be prose with a comma a line, so they need a line of names without spaces.
char separator_of_table(std::string_view content) {
  constexpr std::size_t kLines = 8;
  for (const char separator : {',', '\t', ';'}) {
    std::string_view rest = content;
    std::size_t columns = 0;
    std::size_t lines = 0;
    for (; lines < kLines && !rest.empty(); ++lines) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      std::size_t here = 1;
      bool is_quoted = false;
      for (const char c : line) {
        if (c == '"') is_quoted = !is_quoted;
        if (c == separator && !is_quoted) ++here;
      }
      if (lines == 0) {
        columns = here;
        const bool has_names = line.find(' ') == std::string_view::npos;
        if (columns < 2 || (columns == 2 && !has_names)) break;
      }
      if (is_quoted || here != columns) break;
    }
    if (lines == kLines) return separator;
  }
  return '\0';
}

}  // namespace

void check_is_text(const fs::path& path, std::string_view content) {
  using namespace std::string_view_literals;
  struct Known {
    std::string_view magic;  // what the file begins with
    std::string_view what;
    std::string_view remedy;
  };
  constexpr std::array<Known, 10> kKnown = {{
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
  }};
  for (const auto& [magic, what, remedy] : kKnown) {
    if (content.starts_with(magic)) throw user_error("{} is {}; {}", path.string(), what, remedy);
  }
  refuse_utf16(path, content);
  if (const auto fault = find_text_fault(content)) {
    throw user_error("{} line {} {} (byte {} of the file); {}", path.string(), fault->line,
                     fault->what, fault->byte, fault->remedy);
  }
  refuse_json(path, content);
  refuse_markup(path);
}

std::string oddity_of_text(const fs::path& path, std::string_view content) {
  content = without_byte_order_mark(content);
  if (begins_like_html(content)) {
    return fmt::format(
        "{} is HTML, and its tags are learnt as they are spelled; take the text out of "
        "it first if that is not what you want",
        path.string());
  }
  if (const char separator = separator_of_table(content); separator != '\0') {
    return fmt::format("{} looks like a table of {}, and is learnt as it is spelled; {}",
                       path.string(), separator == '\t' ? "TSV" : "CSV",
                       rows_as_jsonl(path, separator));
  }
  return "";
}

}  // namespace atl::data
