#include "atoll/data/input_format.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "atoll/base/files/text_encoding.h"

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

InputFormat input_format(const fs::path& path, std::string_view content) {
  const std::string ending = ending_of(path);
  if (ending == ".bin") return InputFormat::kBin;
  if (is_jsonl_ending(ending) || begins_with_object_line(content)) return InputFormat::kJsonl;
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
  }
  return "?";
}

bool is_searched_for(const fs::path& path) {
  // Not *.bin: too many files that are no tokens are called so. Not the log of a run that lies
  // under the directory: it is no text, and grows with every run.
  if (path.filename() == "metrics.jsonl") return false;
  const std::string ending = ending_of(path);
  return ending == ".txt" || is_jsonl_ending(ending);
}

bool begins_like_json(std::string_view content) {
  content = without_byte_order_mark(content);
  while (take(content, '[')) {
  }
  return begins_with_key(content);
}

}  // namespace atl::data
