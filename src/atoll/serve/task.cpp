#include "atoll/serve/task.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <optional>

#include "atoll/base/error.h"
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

class ItemParser {
 public:
  ItemParser(const std::string& path, std::int64_t line) : path_(path), line_(line) {}

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
    if (choices_.value) {
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

  struct Field {
    std::string_view key;
    std::optional<dom::element> value;
  };

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw user_error("{} line {} {}", path_, line_,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  void take(std::string_view key, dom::element value) {
    if (key == "tools" && !value.is_null()) {
      fail("has \"tools\", which atoll does not render; write them into the messages");
    }
    for (Field* field : {&prompt_, &messages_, &choices_, &answer_, &answers_}) {
      if (field->key != key) continue;
      if (field->value) fail("has \"{}\" twice; remove one", key);
      field->value = value;
    }
  }

  void read_prompt(TaskItem& item) const {
    if (prompt_.value && messages_.value) {
      fail("has both \"prompt\" and \"messages\"; remove one");
    }
    if (messages_.value) {
      if (!messages_.value->is_array()) fail("has \"messages\" that are not an array");
      item.messages = parse_messages(simdjson::minify(*messages_.value),
                                     fmt::format("{} line {}", path_, line_));
      if (item.messages.empty()) fail("has no message in \"messages\"");
    } else if (prompt_.value) {
      item.prompt = string_in(*prompt_.value, "\"prompt\"");
    } else {
      fail("has neither \"prompt\" nor \"messages\"; give {}", kExpected);
    }
  }

  void read_choices(TaskItem& item) const {
    if (answers_.value) fail("has \"choices\" and \"answers\"; give one right one as \"answer\"");
    item.choices = strings_in(choices_);
    if (item.choices.size() < 2) {
      fail("has \"choices\" with {} of them; give two or more", item.choices.size());
    }
    for (std::size_t i = 0; i < item.choices.size(); ++i) {
      if (item.choices[i].empty()) fail("has an empty choice, \"choices\"[{}]", i);
    }
    if (!answer_.value) fail("has \"choices\" and no \"answer\"; give the right one's index");
    item.answer = right_choice(item.choices);
  }

  std::size_t right_choice(const std::vector<std::string>& choices) const {
    std::uint64_t index = 0;
    if (!answer_.value->get(index)) {
      if (index < choices.size()) return static_cast<std::size_t>(index);
      fail("has \"answer\" {}, and its {} choices are counted from 0", index, choices.size());
    }
    std::string_view text;
    if (answer_.value->get(text)) {
      fail("has an \"answer\" that is neither a choice's index, from 0, nor its text");
    }
    const auto found = std::find(choices.begin(), choices.end(), text);
    if (found == choices.end()) {
      fail("has the \"answer\" \"{}\", which is none of its choices", beginning(text));
    }
    if (std::find(found + 1, choices.end(), text) != choices.end()) {
      fail("has the \"answer\" \"{}\", which several choices are; give an index", beginning(text));
    }
    return static_cast<std::size_t>(found - choices.begin());
  }

  void read_answers(TaskItem& item) const {
    if (answer_.value && answers_.value) fail("has both \"answer\" and \"answers\"; remove one");
    if (answers_.value) {
      item.answers = strings_in(answers_);
      if (item.answers.empty()) fail("has no answer in \"answers\"");
    } else if (answer_.value) {
      item.answers.emplace_back(string_in(*answer_.value, "\"answer\" (and no \"choices\")"));
    } else {
      fail("has neither \"answer\" nor \"answers\"; give {}", kExpected);
    }
    for (const std::string& answer : item.answers) {
      if (text::leading_white_space(answer) == answer.size()) {
        fail("has an empty answer, which any empty output would match");
      }
    }
  }

  std::string_view string_in(dom::element value, std::string_view name) const {
    std::string_view text;
    if (value.get(text)) fail("has a {} that is not a string", name);
    return text;
  }

  std::vector<std::string> strings_in(const Field& field) const {
    dom::array array;
    if (field.value->get(array)) fail("has \"{}\" that are not an array of strings", field.key);
    std::vector<std::string> strings;
    for (const dom::element value : array) {
      const std::string name = fmt::format("\"{}\"[{}]", field.key, strings.size());
      strings.emplace_back(string_in(value, name));
    }
    return strings;
  }

  const std::string& path_;
  std::int64_t line_;
  Field prompt_ = {"prompt", {}};
  Field messages_ = {"messages", {}};
  Field choices_ = {"choices", {}};
  Field answer_ = {"answer", {}};
  Field answers_ = {"answers", {}};
};

}  // namespace

std::vector<TaskItem> read_task(std::string_view content, const std::string& path,
                                std::int64_t limit) {
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
    items.push_back(ItemParser(path, line).parse(parser, text));
    if (static_cast<std::int64_t>(items.size()) == limit) break;
  }
  if (items.empty()) throw user_error("{} has no items; give one JSON object a line", path);
  return items;
}

}  // namespace atl::serve
