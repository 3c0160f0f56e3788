#include "atoll/data/input_format.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "atoll/base/files/text_encoding.h"
#include "atoll/data/bytes/text_window.h"
#include "atoll/data/rows/tar.h"

namespace atl::data {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kWhite = " \t\r\n";

constexpr std::array<std::string_view, 4> kJsonlEndings = {".jsonl", ".ndjson", ".jsonlines",
                                                           ".jl"};

bool is_jsonl_ending(std::string_view ending) {
  return std::find(kJsonlEndings.begin(), kJsonlEndings.end(), ending) != kJsonlEndings.end();
}

// What is left of a text behind its white space and `mark`; without it, nothing.
bool take(std::string_view& text, char mark) {
  text.remove_prefix(std::min(text.find_first_not_of(kWhite), text.size()));
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(1);
  return true;
}

bool begins_with_key(std::string_view text) {
  if (!take(text, '{') || !take(text, '"')) return false;
  bool is_escaped = false;
  for (std::size_t i = 0; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == '"' && !is_escaped) {
      text.remove_prefix(i + 1);
      return take(text, ':');
    }
    is_escaped = text[i] == '\\' && !is_escaped;
  }
  return false;
}

// Whether the first line that is not blank is a whole object.
bool begins_with_object_line(std::string_view content) {
  content = without_byte_order_mark(content);
  if (!begins_with_key(content)) return false;
  content.remove_prefix(content.find('{'));
  const std::string_view line = content.substr(0, content.find('\n'));
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  return parser.parse(line.data(), line.size()).get(object) == simdjson::SUCCESS;
}

}  // namespace

std::string ending_of(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending;
}

InputFormat input_format(const fs::path& path) {
  if (ending_of(path) == ".bin") return InputFormat::kBin;
  using namespace std::string_view_literals;
  constexpr std::size_t kLookedAt = 4096;
  TextWindow window(path);
  window.fill(kLookedAt);
  const std::string_view begin = window.view().substr(0, kLookedAt);
  if (begin.starts_with("PAR1"sv)) return InputFormat::kParquet;
  // A stream begins with the mark of a message that goes on, which is no UTF-8.
  if (begin.starts_with("ARROW1\0\0"sv) || begin.starts_with("\xff\xff\xff\xff"sv)) {
    return InputFormat::kArrow;
  }
  if (begins_like_tar(begin)) return InputFormat::kTar;
  const std::string ending = ending_of(window.name_inside());
  if (is_jsonl_ending(ending)) return InputFormat::kJsonl;
  if (ending == ".csv" || ending == ".tsv") return InputFormat::kCsv;
  std::string_view text = without_byte_order_mark(begin);
  if (take(text, '[')) {
    // An empty array has no object that it could be known by.
    std::string_view rest = text;
    if (begins_with_key(text) || (ending == ".json" && take(rest, ']'))) {
      return InputFormat::kJsonArray;
    }
  }
  // Of a first line that is long, all of it.
  if (begins_with_key(without_byte_order_mark(begin))) {
    window.find('\n', without_byte_order_mark(begin).find('{'));
    if (begins_with_object_line(window.view())) return InputFormat::kJsonl;
  }
  return InputFormat::kText;
}

InputFormat input_format_by_name(const fs::path& path) {
  if (path.extension() == ".jsonl") return InputFormat::kJsonl;
  if (path.extension() == ".bin") return InputFormat::kBin;
  return InputFormat::kText;
}

const char* format_name(InputFormat format) {
  switch (format) {
    case InputFormat::kText:
      return "text";
    case InputFormat::kJsonl:
      return "jsonl";
    case InputFormat::kBin:
      return "bin";
    case InputFormat::kJsonArray:
      return "json";
    case InputFormat::kCsv:
      return "csv";
    case InputFormat::kTar:
      return "tar";
    case InputFormat::kParquet:
      return "parquet";
    case InputFormat::kArrow:
      return "arrow";
  }
  return "?";
}

bool has_rows(InputFormat format) {
  return format != InputFormat::kText && format != InputFormat::kBin;
}

bool is_searched_for_by_name(const fs::path& path) {
  // Not *.bin: too many files that are no tokens are called so. Not the log of a run that lies
  // under the directory: it is no text, and grows with every run.
  if (path.filename() == "metrics.jsonl") return false;
  std::string ending = ending_of(path);
  if (is_compressed_ending(ending)) {
    if (ending.starts_with(".t")) return true;  // .tgz
    ending = ending_of(path.stem());
  }
  constexpr std::array<std::string_view, 6> kEndings = {".txt",     ".csv",   ".tsv",
                                                        ".parquet", ".arrow", ".tar"};
  if (std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end()) return true;
  return is_jsonl_ending(ending);
}

bool is_searched_for(const fs::path& path) {
  if (is_searched_for_by_name(path)) return true;
  std::string ending = ending_of(path);
  if (is_compressed_ending(ending)) ending = ending_of(path.stem());
  // Many a .json beside data describes them: an object.
  return ending == ".json" && input_format(path) == InputFormat::kJsonArray;
}

const char* searched_endings() {
  return ".txt, .jsonl, .csv, .tsv, .parquet, .arrow, .tar and .json files of an array";
}

bool begins_like_json(std::string_view content) {
  content = without_byte_order_mark(content);
  while (take(content, '[')) {
  }
  return begins_with_key(content);
}

}  // namespace atl::data
