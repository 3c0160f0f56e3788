#include "atoll/serve/task.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/data/field_map.h"
#include "atoll/data/jsonl/python_json.h"
#include "atoll/data/jsonl/row_messages.h"
#include "atoll/text/utf8.h"

namespace atl::serve {

namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Enough of a text to recognise it by.
std::string_view beginning(std::string_view text) {
  constexpr std::size_t kShown = 60;
  return text.substr(0, text::valid_utf8_prefix(text.substr(0, kShown)));
}

enum Field : std::size_t { kPrompt, kMessages, kChoices, kAnswer, kAnswers };

data::FieldMap map_of(const data::Fields& fields) {
  return data::FieldMap({{"--field prompt", fields.prompt},
                         {"--field messages", fields.messages},
                         {"--field choices", fields.choices},
                         {"--field answer", fields.answer},
                         {"--field answers", fields.answers}});
}

class ItemParser {
 public:
  ItemParser(const std::string& path, std::int64_t line, const data::Fields& fields,
             const data::FieldMap& map)
      : path_(path), line_(line), fields_(fields), values_(map) {}

  TaskItem parse(dom::parser& parser, std::string_view text) {
    const dom::element root = parse_json(parser, text);
    dom::object object;
    if (root.get(object)) fail("is not a JSON object; give {}", kExpected);
    for (const dom::key_value_pair field : object) take(field.key, field.value);
    TaskItem item;
    item.line = line_;
    read_prompt(item);
    if (values_.has(kChoices)) {
      read_choices(item);
    } else {
      read_answers(item);
    }
    if (plain_) refuse_replacements(item);
    return item;
  }

 private:
  static constexpr const char* kExpected =
      "{\"prompt\": \"...\", \"choices\": [...], \"answer\": 0} or {\"prompt\": \"...\", "
      "\"answer\": \"...\"}";

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw user_error("{} line {} {}", path_, line_,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  // A value that only Python's json module reads is no reason to refuse a line that does not use
  // it.
  dom::element parse_json(dom::parser& parser, std::string_view text) {
    dom::element root;
    auto error = parser.parse(text.data(), text.size()).get(root);
    if (error && error != simdjson::UTF8_ERROR) {
      plain_ = data::without_python_values(text);
      if (plain_) error = parser.parse(plain_->text).get(root);
    }
    if (error) {
      fail("is not {}: {}", error == simdjson::UTF8_ERROR ? "UTF-8" : "JSON",
           simdjson::error_message(error));
    }
    return root;
  }

  void refuse_replacements(const TaskItem& item) const {
    bool is_used = data::has_replacement(item.prompt) || data::has_replacement(item.variables);
    for (const auto* texts : {&item.choices, &item.answers}) {
      for (const std::string& text : *texts) is_used = is_used || data::has_replacement(text);
    }
    for (const ChatMessage& message : item.messages) {
      is_used = is_used || data::has_replacement(message.content.value_or("")) ||
                data::has_replacement(message.extra);
    }
    if (is_used) fail("holds {} in a value that is read: {}", plain_->first, plain_->reason);
  }

  std::string name(Field field) const { return fmt::format("\"{}\"", values_.spec(field)); }

  // Keys called otherwise than usual are found by --field.
  std::string expected() const {
    return fields_ == data::Fields() ? kExpected : "the keys that --field names";
  }

  void take(std::string_view key, dom::element value) {
    if (key == "tools" && !value.is_null()) row_.tools = value;
    if (key == "functions" && !value.is_null()) row_.functions = value;
    if (key == "chat_template_kwargs" && !value.is_null()) row_.kwargs = value;
    if (!values_.take(key, value)) fail("has \"{}\" twice; remove one", key);
  }

  std::string text_of(Field field, std::string_view also = "") const {
    std::string problem;
    const std::optional<std::string> text = values_.text(field, problem);
    if (!text && values_.value(field)) fail("has a {}{} that is not a string", name(field), also);
    if (!text) fail("{}", problem);
    return *text;
  }

  void read_prompt(TaskItem& item) const {
    if (values_.has(kPrompt) && values_.has(kMessages)) {
      fail("has both {} and {}; remove one", name(kPrompt), name(kMessages));
    }
    const auto prompt = values_.value(kPrompt);
    if (values_.has(kMessages)) {
      if (!values_.value(kMessages)->is_array()) {
        fail("has {} that are not an array", name(kMessages));
      }
      read_messages(kMessages, item);
    } else if (prompt && prompt->is_array()) {
      read_messages(kPrompt, item);
    } else if (values_.has(kPrompt)) {
      item.prompt = text_of(kPrompt);
    } else {
      fail("has neither {} nor {}; give {}", name(kPrompt), name(kMessages), expected());
    }
  }

  void read_messages(Field field, TaskItem& item) const {
    const std::string origin = fmt::format("{} line {}", path_, line_);
    data::JsonlLine line;
    item.messages =
        parse_messages(data::conversation(*values_.value(field), fields_, origin, line), origin);
    if (item.messages.empty()) fail("has no message in {}", name(field));
    item.variables = data::template_variables(row_, origin);
  }

  // Texts with their labels, as ARC has them: {"text": ["Lyon", "Paris"], "label": ["A", "B"]}.
  void read_labelled_choices(const dom::object& choices, TaskItem& item,
                             std::vector<std::string>& labels) const {
    dom::array texts;
    dom::array names;
    if (choices["text"].get(texts) || choices["label"].get(names) || texts.size() != names.size()) {
      fail("has {} that are an object without a list \"text\" and as long a list \"label\"",
           name(kChoices));
    }
    item.choices = strings_in(kChoices, texts);
    labels = strings_in(kChoices, names);
  }

  void read_choices(TaskItem& item) const {
    if (values_.has(kAnswers)) {
      fail("has {} and {}; give one right one as {}", name(kChoices), name(kAnswers),
           name(kAnswer));
    }
    std::vector<std::string> labels;
    dom::object labelled;
    if (!values_.value(kChoices)->get(labelled)) {
      read_labelled_choices(labelled, item, labels);
    } else {
      item.choices = strings_in(kChoices);
    }
    if (item.choices.size() < 2) {
      fail("has {} with {} of them; give two or more", name(kChoices), item.choices.size());
    }
    for (std::size_t i = 0; i < item.choices.size(); ++i) {
      if (item.choices[i].empty()) fail("has an empty choice, {}[{}]", name(kChoices), i);
    }
    if (!values_.has(kAnswer)) {
      fail("has {} and no {}; give the right one's index", name(kChoices), name(kAnswer));
    }
    item.answer = right_choice(item.choices, labels);
  }

  // The place of `text` in a list; nothing when it is not there. Refuses one that is there twice.
  std::optional<std::size_t> only_place(const std::string& text,
                                        const std::vector<std::string>& list,
                                        std::string_view what) const {
    const auto found = std::find(list.begin(), list.end(), text);
    if (found == list.end()) return std::nullopt;
    if (std::find(found + 1, list.end(), text) != list.end()) {
      fail("has the {} \"{}\", which several {} are; give an index", name(kAnswer), beginning(text),
           what);
    }
    return static_cast<std::size_t>(found - list.begin());
  }

  // What the answer of published tasks is where it is none of the choices' texts: an index as text
  // ("3") or a letter ("D").
  static std::optional<std::size_t> written_index(const std::string& text, std::size_t count) {
    std::size_t index = count;
    const char* end = text.data() + text.size();
    if (text.size() == 1 && text[0] >= 'A' && text[0] <= 'Z') {
      index = static_cast<std::size_t>(text[0] - 'A');
    } else if (const auto parsed = std::from_chars(text.data(), end, index);
               parsed.ec != std::errc() || parsed.ptr != end) {
      return std::nullopt;
    }
    if (index >= count) return std::nullopt;
    return index;
  }

  std::size_t right_choice(const std::vector<std::string>& choices,
                           const std::vector<std::string>& labels) const {
    std::uint64_t index = 0;
    const std::optional<dom::element> answer = values_.value(kAnswer);
    if (answer && !answer->get(index)) {
      if (index < choices.size()) return static_cast<std::size_t>(index);
      fail("has {} {}, and its {} choices are counted from 0", name(kAnswer), index,
           choices.size());
    }
    std::string problem;
    const std::optional<std::string> text = values_.text(kAnswer, problem);
    if (!text) {
      fail("has an {} that is neither a choice's index, from 0, nor its label or text",
           name(kAnswer));
    }
    // Of labelled choices the answer is a label.
    if (const auto label = only_place(*text, labels, "labels")) return *label;
    if (const auto choice = only_place(*text, choices, "choices")) return *choice;
    if (labels.empty()) {
      if (const auto index = written_index(*text, choices.size())) return *index;
    }
    fail("has the {} \"{}\", which is none of its choices", name(kAnswer), beginning(*text));
  }

  void read_answers(TaskItem& item) const {
    if (values_.has(kAnswer) && values_.has(kAnswers)) {
      fail("has both {} and {}; remove one", name(kAnswer), name(kAnswers));
    }
    if (values_.has(kAnswers)) {
      item.answers = strings_in(kAnswers);
      if (item.answers.empty()) fail("has no answer in {}", name(kAnswers));
    } else if (values_.has(kAnswer)) {
      item.answers.push_back(text_of(kAnswer, fmt::format(" (and no {})", name(kChoices))));
    } else {
      fail("has neither {} nor {}; give {}", name(kAnswer), name(kAnswers), expected());
    }
    for (const std::string& answer : item.answers) {
      if (text::leading_white_space(answer) == answer.size()) {
        fail("has an empty answer, which any empty output would match");
      }
    }
  }

  std::vector<std::string> strings_in(Field field) const {
    dom::array array;
    if (values_.value(field)->get(array)) {
      fail("has {} that are not an array of strings", name(field));
    }
    return strings_in(field, array);
  }

  std::vector<std::string> strings_in(Field field, const dom::array& array) const {
    std::vector<std::string> strings;
    for (const dom::element value : array) {
      std::string_view text;
      if (value.get(text)) {
        fail("has a {}[{}] that is not a string", name(field), strings.size());
      }
      strings.emplace_back(text);
    }
    return strings;
  }

  const std::string& path_;
  std::int64_t line_;
  const data::Fields& fields_;
  data::FieldValues values_;
  data::RowVariables row_;
  std::optional<data::PlainJson> plain_;  // of a line that only Python reads
};

}  // namespace

std::vector<TaskItem> read_task(std::string_view content, const std::string& path,
                                std::int64_t limit, const data::Fields& fields) {
  const data::FieldMap map = map_of(fields);
  if (content.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    content.remove_prefix(kByteOrderMark.size());
  }
  dom::parser parser;
  std::vector<TaskItem> items;
  for (std::int64_t line = 1; !content.empty(); ++line) {
    const std::size_t size = std::min(content.find('\n'), content.size());
    const std::string_view text = content.substr(0, size);
    content.remove_prefix(std::min(size + 1, content.size()));
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    items.push_back(ItemParser(path, line, fields, map).parse(parser, text));
    if (static_cast<std::int64_t>(items.size()) == limit) break;
  }
  if (items.empty()) throw user_error("{} has no items; give one JSON object a line", path);
  return items;
}

}  // namespace atl::serve
