#include "atoll/serve/task.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/data/field_map.h"
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
    dom::element root;
    if (const auto error = parser.parse(text.data(), text.size()).get(root)) {
      fail("is not {}: {}", error == simdjson::UTF8_ERROR ? "UTF-8" : "JSON",
           simdjson::error_message(error));
    }
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

  std::string name(Field field) const { return fmt::format("\"{}\"", values_.spec(field)); }

  // Keys called otherwise than usual are found by --field.
  std::string expected() const {
    return fields_ == data::Fields() ? kExpected : "the keys that --field names";
  }

  void take(std::string_view key, dom::element value) {
    if (key == "tools" && !value.is_null()) {
      fail("has \"tools\", which atoll does not render; write them into the messages");
    }
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
    if (values_.has(kMessages)) {
      const dom::element messages = *values_.value(kMessages);
      if (!messages.is_array()) fail("has {} that are not an array", name(kMessages));
      const std::string origin = fmt::format("{} line {}", path_, line_);
      std::string json = simdjson::minify(messages);
      if (!fields_.has_plain_messages()) json = data::plain_messages(fields_, json, origin);
      item.messages = parse_messages(json, origin);
      if (item.messages.empty()) fail("has no message in {}", name(kMessages));
    } else if (values_.has(kPrompt)) {
      item.prompt = text_of(kPrompt);
    } else {
      fail("has neither {} nor {}; give {}", name(kPrompt), name(kMessages), expected());
    }
  }

  void read_choices(TaskItem& item) const {
    if (values_.has(kAnswers)) {
      fail("has {} and {}; give one right one as {}", name(kChoices), name(kAnswers),
           name(kAnswer));
    }
    item.choices = strings_in(kChoices);
    if (item.choices.size() < 2) {
      fail("has {} with {} of them; give two or more", name(kChoices), item.choices.size());
    }
    for (std::size_t i = 0; i < item.choices.size(); ++i) {
      if (item.choices[i].empty()) fail("has an empty choice, {}[{}]", name(kChoices), i);
    }
    if (!values_.has(kAnswer)) {
      fail("has {} and no {}; give the right one's index", name(kChoices), name(kAnswer));
    }
    item.answer = right_choice(item.choices);
  }

  std::size_t right_choice(const std::vector<std::string>& choices) const {
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
      fail("has an {} that is neither a choice's index, from 0, nor its text", name(kAnswer));
    }
    const auto found = std::find(choices.begin(), choices.end(), *text);
    if (found == choices.end()) {
      fail("has the {} \"{}\", which is none of its choices", name(kAnswer), beginning(*text));
    }
    if (std::find(found + 1, choices.end(), *text) != choices.end()) {
      fail("has the {} \"{}\", which several choices are; give an index", name(kAnswer),
           beginning(*text));
    }
    return static_cast<std::size_t>(found - choices.begin());
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
