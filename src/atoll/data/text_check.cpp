#include "atoll/data/text_check.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/data/bytes/text_window.h"
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

constexpr const char* kNotUtf8 =
    "write it as UTF-8, e.g. iconv -f LATIN1 -t UTF-8, or take those bytes out";
constexpr const char* kHasNul =
    "take it out, or, where the text is UTF-16, write it as UTF-8: iconv -f UTF-16 -t UTF-8";

// What of a file's content no text has, if there is such.
std::optional<TextFault> find_text_fault(TextWindow& window) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  constexpr std::size_t kLongestCharacter = 4;
  std::int64_t line = 1;
  for (bool is_last = false; !is_last;) {
    is_last = !window.fill(kPiece + 1);
    const std::string_view content = window.view().substr(0, kPiece);
    const std::size_t nul = std::min(content.find('\0'), content.size());
    const std::size_t valid = text::valid_utf8_prefix(content.substr(0, nul));
    line += std::count(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(valid), '\n');
    const auto byte = static_cast<std::size_t>(window.position() + valid);
    if (valid < nul) {
      // A character may go on in the next piece.
      const bool may_go_on =
          !is_last && nul == content.size() && content.size() - valid < kLongestCharacter;
      if (!may_go_on) return TextFault{byte, line, "is not UTF-8", kNotUtf8};
    } else if (nul < content.size()) {
      return TextFault{byte, line, "has a NUL byte", kHasNul};
    }
    window.consume(valid);
  }
  return std::nullopt;
}

void refuse_json(const TextWindow& window, std::string_view content) {
  const fs::path& path = window.path();
  const std::string_view text = without_byte_order_mark(content);
  const std::size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const bool is_list = text.substr(first).starts_with('[');
  const bool is_named = ending_of(window.name_inside()) == ".json" &&
                        (is_list || text.substr(first).starts_with('{'));
  if (!is_named && !begins_like_json(content)) return;
  throw user_error(
      "{} is JSON, and neither an array of objects nor is its first line a whole object; write one "
      "object a line: jq -c '{}' {} >{}.jsonl",
      path.string(), is_list ? ".[]" : ".", path.string(), path.stem().string());
}

void refuse_markup(const fs::path& path, const fs::path& name) {
  struct Kind {
    std::string_view ending;
    const char* name;
    const char* remedy;
  };
  constexpr const char* kTakeOut = "take the text out of it first";
  constexpr const char* kRows = "write its rows as JSON lines";
  constexpr std::array<Kind, 6> kKinds = {{{".html", "HTML", kTakeOut},
                                           {".htm", "HTML", kTakeOut},
                                           {".xhtml", "HTML", kTakeOut},
                                           {".xml", "XML", kTakeOut},
                                           {".yaml", "YAML", kRows},
                                           {".yml", "YAML", kRows}}};
  const std::string ending = ending_of(name);
  for (const Kind& kind : kKinds) {
    if (ending != kind.ending) continue;
    throw user_error(
        "{} is {}, which would be learnt as it is spelled; {}; or call it .txt if that is what you "
        "want",
        path.string(), kind.name, kind.remedy);
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

void check_is_text(const fs::path& path) {
  using namespace std::string_view_literals;
  struct Known {
    std::string_view magic;  // what the file begins with
    std::string_view what;
    std::string_view remedy;
  };
  constexpr std::array<Known, 7> kKnown = {{
      {"PK\x03\x04"sv, "a zip archive", "unpack it first"},
      {"7z\xbc\xaf\x27\x1c"sv, "a 7-Zip archive", "unpack it first"},
      {"\x89HDF"sv, "an HDF5 file", "write its rows as JSONL, one object a line"},
      {"Obj\x01"sv, "an Avro file", "write its rows as JSONL, one object a line"},
      {"ORC"sv, "an ORC file", "write its rows as JSONL, one object a line"},
      {"GGUF"sv, "a model in a GGUF file", "give text"},
      {"%PDF-"sv, "a PDF", "get the text out of it first: pdftotext"},
  }};
  constexpr std::size_t kLookedAt = 4096;
  TextWindow window(path);
  window.fill(kLookedAt);
  const std::string begin(window.view().substr(0, kLookedAt));
  for (const auto& [magic, what, remedy] : kKnown) {
    const bool is_binary = magic != "ORC"sv || begin.find('\0') != std::string::npos;
    if (begin.starts_with(magic) && is_binary) {
      throw user_error("{} is {}; {}", path.string(), what, remedy);
    }
  }
  refuse_utf16(path, begin);
  if (const auto fault = find_text_fault(window)) {
    throw user_error(
        "{} line {} {} (byte {} of {}); {}", path.string(), fault->line, fault->what, fault->byte,
        window.compression() == Compression::kNone ? "the file" : "its content", fault->remedy);
  }
  refuse_json(window, begin);
  refuse_markup(path, window.name_inside());
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
                       separator == '\t' ? "call it .tsv to learn its columns"
                                         : "call it .csv to learn its columns");
  }
  return "";
}

}  // namespace atl::data
