#include "atoll/data/jsonl/jsonl.h"

#include <simdjson.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/data/field_map.h"
#include "atoll/data/jsonl/foreign_rows.h"
#include "atoll/data/jsonl/python_json.h"
#include "atoll/data/jsonl/row_messages.h"
#include "atoll/data/jsonl/row_parser.h"

namespace atl::data {

namespace {

namespace dom = simdjson::dom;

constexpr const char* kExpected =
    "give {\"text\": ...}, {\"prompt\": ..., \"completion\": ...} or {\"messages\": [...]}";

constexpr const char* kMessagesAndPrompt =
    "conversations with their first question beside them: \"messages\" is read, \"prompt\" is not";

enum Field : std::size_t { kText, kPrompt, kCompletion, kMessages };

class LineParser {
 public:
  LineParser(const std::string& path, const JsonlLine& line, const Fields& fields,
             const FieldMap& map)
      : path_(path),
        place_(line.place(path)),
        number_(line.number),
        is_line_(std::string_view(line.unit) == "line"),
        fields_(fields),
        values_(map) {}

  void parse(dom::parser& parser, std::string_view text, JsonlLine& line) {
    const dom::element root = parse_json(parser, text);
    if (root.is_array() && number_ == 1 && is_line_) {
      fail("is not an object but a list",
           fmt::format("write one object a line: jq -c '.[]' {} >rows.jsonl", path_));
    }
    if (root.get(object_)) fail("is not an object", kExpected);
    for (const dom::key_value_pair field : object_) take(field.key, field.value);
    choose_kind(line);
    if (line.kind == JsonlKind::kMessages) line.variables = template_variables(row_, origin());
    check_variables(line);
    if (plain_ && (has_replacement(line.text) || has_replacement(line.variables))) {
      fail(fmt::format("holds {} in a value that is read", plain_->first),
           fmt::format("{}; write another value, or leave the line out", plain_->reason));
    }
  }

 private:
  [[noreturn]] void fail(std::string_view what, std::string_view remedy) const {
    throw user_error("{} {}; {}", place_, what, remedy);
  }

  // Python's json module writes and reads more than the standard allows. Such a value is no
  // reason to refuse a line that does not use it.
  dom::element parse_json(dom::parser& parser, std::string_view text) {
    dom::element root;
    auto error = parser.parse(text.data(), text.size()).get(root);
    if (error && error != simdjson::UTF8_ERROR && error != simdjson::DEPTH_ERROR) {
      plain_ = without_python_values(text);
      if (plain_) error = parser.parse(plain_->text).get(root);
    }
    if (!error) return root;
    if (error == simdjson::UTF8_ERROR) fail("is not UTF-8", simdjson::error_message(error));
    if (error != simdjson::DEPTH_ERROR && is_line_) refuse_several_lines(text);
    fail("is not JSON", simdjson::error_message(error));
  }

  // Variables without a chat template would change nothing, and whoever wrote them wants a change.
  void check_variables(const JsonlLine& line) const {
    dom::object variables;
    if (line.kind == JsonlKind::kMessages || !row_.kwargs) return;
    if (!row_.kwargs->get(variables) && variables.size() == 0) return;
    fail("has \"chat_template_kwargs\" and no messages",
         "remove them; they are for a chat template");
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
    const bool is_none = value.is_null();
    if (key == "tools" && !is_none) row_.tools = value;
    if (key == "functions" && !is_none) row_.functions = value;
    if (key == "chat_template_kwargs" && !is_none) row_.kwargs = value;
    if (!values_.take(key, value)) fail(fmt::format("has \"{}\" twice", key), "remove one");
  }

  std::string string_at(Field field) const {
    std::string problem;
    const std::optional<std::string> text = values_.text(field, problem);
    if (!text) fail(problem, expected());
    return *text;
  }

  std::string quoted(Field field) const { return fmt::format("\"{}\"", values_.spec(field)); }

  const std::string& origin() const { return place_; }

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

  // What to do about a line of several kinds: leave a key out of it.
  std::string one_kind() const {
    if (!is_line_) {
      return fmt::format(
          "of {}, {} with {}, and {} only one can be read; for the others name keys that are not "
          "there (--field text=unused; data.fields of a recipe)",
          quoted(kText), quoted(kPrompt), quoted(kCompletion), quoted(kMessages));
    }
    return fmt::format("keep one of {}, {} with {}, and {}: jq -c 'del(.text)' {} >rows.jsonl",
                       quoted(kText), quoted(kPrompt), quoted(kCompletion), quoted(kMessages),
                       path_);
  }

  void choose_kind(JsonlLine& line) const {
    const bool has_text = values_.has(kText);
    const bool has_messages = values_.has(kMessages);
    // Sets of conversations often have the first question as "prompt" too.
    const bool is_prompt_of_messages =
        has_messages && values_.has(kPrompt) && !values_.has(kCompletion);
    const bool pair = (values_.has(kPrompt) || values_.has(kCompletion)) && !is_prompt_of_messages;
    const int kinds = int{has_text} + int{pair} + int{has_messages};
    const bool compares = !object_["chosen"].error() && !object_["rejected"].error();
    if (compares && !has_text && !has_messages && !values_.has(kCompletion)) {
      fail("compares two answers", "a run learns from it with --train.objective=dpo, or orpo");
    }
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
    if (kinds > 1) fail("is of more than one kind", one_kind());
    if (has_text) {
      line.kind = JsonlKind::kText;
      line.text = string_at(kText);
    } else if (pair) {
      read_pair(line);
    } else {
      read_messages(line);
      if (is_prompt_of_messages && *line.mapping == '\0') line.mapping = kMessagesAndPrompt;
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
    const auto prompt_value = values_.value(kPrompt);
    const auto completion_value = values_.value(kCompletion);
    const bool has_lists = (prompt_value && prompt_value->is_array()) ||
                           (completion_value && completion_value->is_array());
    if (has_lists && prompt_value && completion_value) {
      line.kind = JsonlKind::kMessages;
      line.text = pair_conversation(*prompt_value, *completion_value, fields_, origin(), line);
      return;
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
    line.text = conversation(*messages, fields_, origin(), line);
  }

  const std::string& path_;
  std::string place_;
  std::int64_t number_;
  bool is_line_;
  const Fields& fields_;
  FieldValues values_;
  dom::object object_;
  RowVariables row_;
  std::optional<PlainJson> plain_;  // of a line that only Python reads; object_ is made of it
};

}  // namespace

RowParser::RowParser(std::string path, const Fields& fields)
    : path_(std::move(path)),
      fields_(fields),
      map_({{"data.fields.text", fields.text},
            {"data.fields.prompt", fields.prompt},
            {"data.fields.completion", fields.completion},
            {"data.fields.messages", fields.messages}}) {}

void RowParser::parse(std::string_view json, JsonlLine& line) {
  line.completion = 0;
  line.variables.clear();
  line.mapping = "";
  LineParser(path_, line, fields_, map_).parse(parser_, json, line);
}

bool RowParser::reads(std::string_view key) const {
  return map_.reads(key) || key == "tools" || key == "functions" || key == "chat_template_kwargs" ||
         is_foreign_key(key);
}

void for_each_jsonl_line(std::string_view content, const std::string& path,
                         const std::function<void(const JsonlLine&)>& fn, const Fields& fields) {
  RowParser parser(path, fields);
  JsonlLine line;
  while (line.end < content.size()) {
    const std::size_t begin = line.end;
    const std::size_t newline = std::min(content.find('\n', begin), content.size());
    line.end = std::min(newline + 1, content.size());
    ++line.number;
    std::string_view text = content.substr(begin, newline - begin);
    if (begin == 0) text = without_byte_order_mark(text);
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    parser.parse(text, line);
    fn(line);
  }
}

}  // namespace atl::data
