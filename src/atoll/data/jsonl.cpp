#include "atoll/data/jsonl.h"

#include <simdjson.h>

#include <array>
#include <optional>

#include "atoll/base/error.h"

namespace atl::data {

namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr const char* kExpected =
    "give {\"text\": ...}, {\"prompt\": ..., \"completion\": ...} or {\"messages\": [...]}";

class LineParser {
 public:
  LineParser(const std::string& path, std::int64_t number) : path_(path), number_(number) {}

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
  struct Field {
    std::string_view key;
    std::optional<dom::element> value;
  };

  [[noreturn]] void fail(std::string_view what, std::string_view remedy) const {
    throw user_error("{} line {} {}; {}", path_, number_, what, remedy);
  }

  void take(std::string_view key, dom::element value) {
    if (value.is_null()) return;  // how tables are written whose rows differ in their columns
    if (key == "tools") {
      fail("has \"tools\", which atoll does not render", "write them into the messages");
    }
    for (Field& field : fields_) {
      if (field.key != key) continue;
      if (field.value) fail(fmt::format("has \"{}\" twice", key), "remove one");
      field.value = value;
    }
  }

  std::string_view string_at(const Field& field) const {
    std::string_view text;
    if (field.value->get(text)) {
      fail(fmt::format("has a \"{}\" that is not a string", field.key), kExpected);
    }
    return text;
  }

  void choose_kind(JsonlLine& line) const {
    const auto& [text, prompt, completion, messages] = fields_;
    const bool pair = prompt.value || completion.value;
    const int kinds = int{text.value.has_value()} + int{pair} + int{messages.value.has_value()};
    if (kinds == 0) {
      fail("has neither \"text\" nor \"prompt\" nor \"messages\"", kExpected);
    }
    if (kinds > 1) fail("is of more than one kind", kExpected);
    if (text.value) {
      line.kind = JsonlKind::kText;
      line.text = string_at(text);
    } else if (pair) {
      if (!prompt.value) fail("has a \"completion\" and no \"prompt\"", kExpected);
      if (!completion.value) fail("has a \"prompt\" and no \"completion\"", kExpected);
      line.kind = JsonlKind::kCompletion;
      line.text = string_at(prompt);
      line.completion = line.text.size();
      line.text += string_at(completion);
    } else {
      if (!messages.value->is_array()) fail("has \"messages\" that are not an array", kExpected);
      line.kind = JsonlKind::kMessages;
      line.text = simdjson::minify(*messages.value);
    }
  }

  const std::string& path_;
  std::int64_t number_;
  std::array<Field, 4> fields_ = {
      {{"text", {}}, {"prompt", {}}, {"completion", {}}, {"messages", {}}}};
};

}  // namespace

void for_each_jsonl_line(std::string_view content, const std::string& path,
                         const std::function<void(const JsonlLine&)>& fn) {
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
    LineParser(path, line.number).parse(parser, text, line);
    fn(line);
  }
}

}  // namespace atl::data
