#include "atoll/data/jsonl/jsonl.h"

#include <simdjson.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/data/field_map.h"
#include "atoll/data/jsonl/foreign_rows.h"

namespace atl::data {

namespace {

namespace dom = simdjson::dom;

constexpr const char* kExpected =
    "give {\"text\": ...}, {\"prompt\": ..., \"completion\": ...} or {\"messages\": [...]}";

constexpr const char* kShareGptMessages =
    "ShareGPT (from, value), as messages: human is the user, gpt the assistant";

enum Field : std::size_t { kText, kPrompt, kCompletion, kMessages };

class LineParser {
 public:
  LineParser(const std::string& path, std::int64_t number, const Fields& fields,
             const FieldMap& map)
      : path_(path), number_(number), fields_(fields), values_(map) {}

  void parse(dom::parser& parser, std::string_view text, JsonlLine& line) {
    dom::element root;
    if (const auto error = parser.parse(text.data(), text.size()).get(root)) {
      if (error == simdjson::UTF8_ERROR) fail("is not UTF-8", simdjson::error_message(error));
      if (error != simdjson::DEPTH_ERROR) refuse_several_lines(text);
      fail("is not JSON", simdjson::error_message(error));
    }
    if (root.is_array() && number_ == 1) {
      fail("is not an object but a list",
           fmt::format("write one object a line: jq -c '.[]' {} >rows.jsonl", path_));
    }
    if (root.get(object_)) fail("is not an object", kExpected);
    for (const dom::key_value_pair field : object_) take(field.key, field.value);
    choose_kind(line);
    if (variables_.empty()) return;
    if (line.kind != JsonlKind::kMessages) {
      fail("has \"chat_template_kwargs\" and no messages",
           "remove them; they are for a chat template");
    }
    line.variables = variables_;
  }

 private:
  [[noreturn]] void fail(std::string_view what, std::string_view remedy) const {
    throw user_error("{} line {} {}; {}", path_, number_, what, remedy);
  }

  // An object that is written over several lines, as people read it.
  void refuse_several_lines(std::string_view text) const {
    const std::size_t last = text.find_last_not_of(" \t\r");
    const bool goes_on =
        last != std::string_view::npos &&
        (text[last] == '{' || text[last] == '[' || text[last] == ',' || text[last] == ':');
    if (!goes_on) return;
    fail("is not JSON by itself",
         fmt::format("in JSON lines each object has a line of its own: jq -c {} {} >rows.jsonl",
                     text[text.find_first_not_of(" \t")] == '[' ? "'.[]'" : ".", path_));
  }

  void take(std::string_view key, dom::element value) {
    if (key == "tools" || key == "functions") {
      dom::array list;
      const bool is_none = value.is_null() || (!value.get(list) && list.size() == 0);
      if (is_none) return;
      fail(fmt::format("has \"{}\", which atoll does not render", key),
           "write them into the messages");
    }
    if (key == "chat_template_kwargs" && !value.is_null()) {
      if (!value.is_object()) fail("has \"chat_template_kwargs\" that are no object", "mend it");
      dom::object variables;
      if (!value.get(variables) && variables.size() > 0) variables_ = simdjson::minify(value);
      return;
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

  std::string origin() const { return fmt::format("{} line {}", path_, number_); }

  // Whether nobody said what the keys are called.
  bool has_usual_fields() const {
    Fields usual;
    usual.chat = fields_.chat;
    return fields_ == usual;
  }

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
    if (kinds == 0 && has_usual_fields() &&
        read_foreign_row(object_, fields_.chat, origin(), line)) {
      return;
    }
    if (kinds == 0) {
      if (has_usual_fields() && object_.size() > 0) {
        fail("has neither \"text\" nor \"prompt\" nor \"messages\"", advice_on_keys(object_));
      }
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
      fail(fmt::format("has a {} and no {}", quoted(kPrompt), quoted(kCompletion)),
           has_usual_fields() ? advice_on_keys(object_) : expected());
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
    if (fields_.has_plain_messages() && has_sharegpt_messages(*messages)) {
      line.text = sharegpt_messages(*messages, origin());
      line.mapping = kShareGptMessages;
      return;
    }
    line.text = simdjson::minify(*messages);
    if (fields_.has_plain_messages()) return;
    line.text = plain_messages(fields_, line.text, origin());
  }

  const std::string& path_;
  std::int64_t number_;
  const Fields& fields_;
  FieldValues values_;
  dom::object object_;
  std::string variables_;
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
    if (begin == 0) text = without_byte_order_mark(text);
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    line.completion = 0;
    line.variables.clear();
    line.mapping = "";
    LineParser(path, line.number, fields, map).parse(parser, text, line);
    fn(line);
  }
}

}  // namespace atl::data
