#include "atoll/data/jsonl.h"

#include <simdjson.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/data/field_map.h"

namespace atl::data {

namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr const char* kExpected =
    "give {\"text\": ...}, {\"prompt\": ..., \"completion\": ...} or {\"messages\": [...]}";

enum Field : std::size_t { kText, kPrompt, kCompletion, kMessages };

class LineParser {
 public:
  LineParser(const std::string& path, std::int64_t number, const Fields& fields,
             const FieldMap& map)
      : path_(path), number_(number), fields_(fields), values_(map) {}

  void parse(dom::parser& parser, std::string_view text, JsonlLine& line) {
    dom::element root;
    if (const auto error = parser.parse(text.data(), text.size()).get(root)) {
      fail(error == simdjson::UTF8_ERROR ? "is not UTF-8" : "is not JSON",
           simdjson::error_message(error));
    }
    dom::object object;
    if (root.get(object)) fail("is not an object", kExpected);
    for (const dom::key_value_pair field : object) take(field.key, field.value);
    choose_kind(line);
  }

 private:
  [[noreturn]] void fail(std::string_view what, std::string_view remedy) const {
    throw user_error("{} line {} {}; {}", path_, number_, what, remedy);
  }

  void take(std::string_view key, dom::element value) {
    if (key == "tools" && !value.is_null()) {
      fail("has \"tools\", which atoll does not render", "write them into the messages");
    }
    if (!values_.take(key, value)) fail(fmt::format("has \"{}\" twice", key), "remove one");
  }

  std::string string_at(Field field) const {
    std::string problem;
    const std::optional<std::string> text = values_.text(field, problem);
    if (!text) fail(problem, expected());
    return *text;
  }

  std::string quoted(Field field) const { return fmt::format("\"{}\"", values_.spec(field)); }

  // What to give: of other keys than the usual ones, the names that were asked for.
  std::string expected() const {
    if (fields_ == Fields()) return kExpected;
    return fmt::format("{}, {} with {}, or {} were asked for (data.fields)", quoted(kText),
                       quoted(kPrompt), quoted(kCompletion), quoted(kMessages));
  }

  void choose_kind(JsonlLine& line) const {
    const bool has_text = values_.has(kText);
    const bool has_messages = values_.has(kMessages);
    const bool pair = values_.has(kPrompt) || values_.has(kCompletion);
    const int kinds = int{has_text} + int{pair} + int{has_messages};
    if (kinds == 0) {
      fail(fmt::format("has neither {} nor {} nor {}", quoted(kText), quoted(kPrompt),
                       quoted(kMessages)),
           expected());
    }
    if (kinds > 1) fail("is of more than one kind", expected());
    if (has_text) {
      line.kind = JsonlKind::kText;
      line.text = string_at(kText);
    } else if (pair) {
      read_pair(line);
    } else {
      read_messages(line);
    }
  }

  void read_pair(JsonlLine& line) const {
    if (!values_.has(kPrompt)) {
      fail(fmt::format("has a {} and no {}", quoted(kCompletion), quoted(kPrompt)), expected());
    }
    if (!values_.has(kCompletion)) {
      fail(fmt::format("has a {} and no {}", quoted(kPrompt), quoted(kCompletion)), expected());
    }
    const std::string prompt = string_at(kPrompt);
    const std::string completion = string_at(kCompletion);
    if (fields_.chat) {
      line.kind = JsonlKind::kMessages;
      line.text = nlohmann::json::array({{{"role", "user"}, {"content", prompt}},
                                         {{"role", "assistant"}, {"content", completion}}})
                      .dump();
      return;
    }
    line.kind = JsonlKind::kCompletion;
    line.completion = prompt.size();
    line.text = prompt + completion;
  }

  void read_messages(JsonlLine& line) const {
    const std::optional<dom::element> messages = values_.value(kMessages);
    if (!messages->is_array()) {
      fail(fmt::format("has {} that are not an array", quoted(kMessages)), expected());
    }
    line.kind = JsonlKind::kMessages;
    line.text = simdjson::minify(*messages);
    if (fields_.has_plain_messages()) return;
    line.text = plain_messages(fields_, line.text, fmt::format("{} line {}", path_, number_));
  }

  const std::string& path_;
  std::int64_t number_;
  const Fields& fields_;
  FieldValues values_;
};

}  // namespace

void for_each_jsonl_line(std::string_view content, const std::string& path,
                         const std::function<void(const JsonlLine&)>& fn, const Fields& fields) {
  const FieldMap map({{"data.fields.text", fields.text},
                      {"data.fields.prompt", fields.prompt},
                      {"data.fields.completion", fields.completion},
                      {"data.fields.messages", fields.messages}});
  dom::parser parser;
  JsonlLine line;
  while (line.end < content.size()) {
    const std::size_t begin = line.end;
    const std::size_t newline = std::min(content.find('\n', begin), content.size());
    line.end = std::min(newline + 1, content.size());
    ++line.number;
    std::string_view text = content.substr(begin, newline - begin);
    if (begin == 0 && text.substr(0, 3) == kByteOrderMark) text.remove_prefix(3);
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    line.completion = 0;
    LineParser(path, line.number, fields, map).parse(parser, text, line);
    fn(line);
  }
}

}  // namespace atl::data
