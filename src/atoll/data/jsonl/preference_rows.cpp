#include "atoll/data/jsonl/preference_rows.h"

#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/data/field_map.h"
#include "atoll/data/jsonl/row_messages.h"

namespace atl::data {

namespace {

namespace dom = simdjson::dom;
using Json = nlohmann::ordered_json;

constexpr const char* kPairs =
    R"(give {"prompt": ..., "chosen": ..., "rejected": ...}, texts or lists of messages)";
constexpr const char* kLabelled =
    R"(give {"prompt": ..., "completion": ..., "label": true or false})";

enum Field : std::size_t { kPrompt, kFirst, kSecond };

std::string written(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Where two texts cease to be equal, at the beginning of a character. A space before that place
// belongs to the answers, as words are tokenized with it.
std::size_t common_length(std::string_view a, std::string_view b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  auto length = static_cast<std::size_t>(differ.first - a.begin());
  const auto is_inside = [&](std::string_view text) {
    return length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U;
  };
  while (length > 0 && (is_inside(a) || is_inside(b))) --length;
  if (length > 0 && length < std::max(a.size(), b.size()) && a[length - 1] == ' ') --length;
  return length;
}

class PreferenceParser {
 public:
  PreferenceParser(const std::string& path, PairKind kind, const Fields& fields,
                   const FieldMap& map)
      : path_(path), kind_(kind), fields_(fields), map_(map) {}

  void parse(dom::parser& parser, std::string_view text, PreferenceRow& row) {
    number_ = row.number;
    unit_ = row.unit;
    dom::element root;
    if (const auto error = parser.parse(text.data(), text.size()).get(root)) {
      fail(error == simdjson::UTF8_ERROR ? "is not UTF-8" : "is not JSON",
           simdjson::error_message(error));
    }
    dom::object object;
    if (root.get(object)) fail("is not an object", expected());
    FieldValues values(map_);
    RowVariables variables;
    std::optional<dom::element> label;
    for (const dom::key_value_pair field : object) {
      const bool is_none = field.value.is_null();
      if (field.key == "tools" && !is_none) variables.tools = field.value;
      if (field.key == "functions" && !is_none) variables.functions = field.value;
      if (field.key == "chat_template_kwargs" && !is_none) variables.kwargs = field.value;
      if (field.key == fields_.label && !is_none) label = field.value;
      if (!values.take(field.key, field.value)) {
        fail(fmt::format("has \"{}\" twice", field.key), "remove one");
      }
    }
    const bool has_none = !values.has(kPrompt) && !values.has(kFirst) &&
                          (kind_ == PairKind::kLabels || !values.has(kSecond));
    if (has_none) fail("has neither a prompt nor answers", expected());
    read(values, row);
    if (kind_ == PairKind::kLabels) read_label(label, row);
    if (row.is_chat) row.variables = template_variables(variables, origin());
  }

 private:
  [[noreturn]] void fail(std::string_view what, std::string_view remedy) const {
    throw user_error("{} {} {} {}; {}", path_, unit_, number_, what, remedy);
  }
  std::string origin() const { return fmt::format("{} {} {}", path_, unit_, number_); }
  const char* expected() const { return kind_ == PairKind::kLabels ? kLabelled : kPairs; }

  // A part of a row: a text, or a list of messages.
  struct Part {
    std::string text;
    std::optional<Json> messages;
  };

  std::optional<Part> part(const FieldValues& values, Field field) const {
    if (!values.has(field)) return std::nullopt;
    const std::optional<dom::element> value = values.value(field);
    if (value && value->is_array()) {
      JsonlLine line;
      Json messages = Json::parse(conversation(*value, fields_, origin(), line), nullptr, false);
      if (!messages.is_array()) fail("has messages that are no list", expected());
      return Part{{}, std::move(messages)};
    }
    std::string problem;
    const std::optional<std::string> text = values.text(field, problem);
    if (!text) fail(problem, expected());
    return Part{*text, std::nullopt};
  }

  void read(const FieldValues& values, PreferenceRow& row) const {
    std::optional<Part> prompt = part(values, kPrompt);
    std::optional<Part> first = part(values, kFirst);
    std::optional<Part> second = kind_ == PairKind::kLabels ? std::nullopt : part(values, kSecond);
    if (!first) row.problem = kind_ == PairKind::kLabels ? "no completion" : "no chosen answer";
    if (kind_ == PairKind::kPreferences && !second) row.problem = "no rejected answer";
    if (kind_ == PairKind::kLabels && !prompt) fail("has no prompt", expected());
    if (!row.problem.empty()) return;
    row.is_chat = fields_.chat;
    for (const auto* each : {&prompt, &first, &second}) {
      row.is_chat = row.is_chat || (*each && (*each)->messages.has_value());
    }
    if (row.is_chat) {
      read_chat(std::move(prompt), std::move(*first), std::move(second), row);
    } else {
      read_texts(prompt, *first, second, row);
    }
    if (second && row.first == row.second) row.problem = "both answers are the same";
  }

  static void read_texts(const std::optional<Part>& prompt, const Part& first,
                         const std::optional<Part>& second, PreferenceRow& row) {
    row.first = first.text;
    if (second) row.second = second->text;
    if (prompt) {
      row.prompt = prompt->text;
      return;
    }
    const std::size_t length = common_length(row.first, row.second);
    row.prompt = row.first.substr(0, length);
    row.first.erase(0, length);
    row.second.erase(0, length);
  }

  // A text is what the user says, or what the assistant answers.
  static Json as_messages(Part part, const char* role) {
    if (part.messages) return std::move(*part.messages);
    return Json::array({Json{{"role", role}, {"content", std::move(part.text)}}});
  }

  void read_chat(std::optional<Part> prompt, Part first, std::optional<Part> second,
                 PreferenceRow& row) const {
    Json chosen = as_messages(std::move(first), "assistant");
    Json rejected = second ? as_messages(std::move(*second), "assistant") : Json(Json::array());
    Json before = prompt ? as_messages(std::move(*prompt), "user") : Json(Json::array());
    if (!prompt) {
      const auto differ =
          std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end());
      before.insert(before.end(), chosen.begin(), differ.first);
      const auto length = static_cast<std::ptrdiff_t>(before.size());
      chosen.erase(chosen.begin(), chosen.begin() + length);
      rejected.erase(rejected.begin(), rejected.begin() + length);
    }
    for (Json& message : before) {
      if (message.is_object() && message.value("role", Json()) == "assistant") {
        message["train"] = false;
      }
    }
    row.prompt = written(before);
    row.first = written(chosen);
    row.second = second ? written(rejected) : "";
    if (chosen.empty()) row.problem = "no chosen answer";
    if (second && rejected.empty()) row.problem = "no rejected answer";
    if (chosen.empty() && rejected.empty()) row.problem = "both answers are the same";
  }

  void read_label(const std::optional<dom::element>& label, PreferenceRow& row) const {
    bool value = false;
    std::int64_t number = 0;
    if (!label) {
      fail(fmt::format("has no \"{}\"", fields_.label), expected());
    } else if (!label->get(value)) {
      row.label = value;
    } else if (!label->get(number) && (number == 0 || number == 1)) {
      row.label = number == 1;
    } else {
      fail(fmt::format("has a \"{}\" that is neither true nor false", fields_.label), expected());
    }
  }

  const std::string& path_;
  PairKind kind_;
  const Fields& fields_;
  const FieldMap& map_;
  std::int64_t number_ = 0;
  const char* unit_ = "line";
};

FieldMap map_of(PairKind kind, const Fields& fields) {
  return FieldMap({{"data.fields.prompt", fields.prompt},
                   kind == PairKind::kLabels
                       ? std::pair("data.fields.completion", fields.completion)
                       : std::pair("data.fields.chosen", fields.chosen),
                   {"data.fields.rejected", fields.rejected}});
}

}  // namespace

struct PreferenceReader::Parts {
  Parts(std::string path_of_file, PairKind kind, const Fields& fields_of_rows)
      : path(std::move(path_of_file)),
        fields(fields_of_rows),
        map(map_of(kind, fields)),
        parser(path, kind, fields, map) {}

  std::string path;
  const Fields& fields;
  FieldMap map;
  PreferenceParser parser;
  dom::parser json;
};

PreferenceReader::PreferenceReader(std::string path, PairKind kind, const Fields& fields)
    : parts_(std::make_unique<Parts>(std::move(path), kind, fields)) {}
PreferenceReader::~PreferenceReader() = default;

void PreferenceReader::parse(std::string_view json, PreferenceRow& row) {
  parts_->parser.parse(parts_->json, json, row);
}

bool PreferenceReader::reads(std::string_view key) const {
  return key == "tools" || key == "functions" || key == "chat_template_kwargs" ||
         key == parts_->fields.label || parts_->map.reads(key);
}

void for_each_preference_row(std::string_view content, const std::string& path, PairKind kind,
                             const std::function<void(const PreferenceRow&)>& fn,
                             const Fields& fields) {
  PreferenceReader reader(path, kind, fields);
  std::size_t end = 0;
  for (std::int64_t number = 1; end < content.size(); ++number) {
    const std::size_t begin = end;
    const std::size_t newline = std::min(content.find('\n', begin), content.size());
    end = std::min(newline + 1, content.size());
    std::string_view text = content.substr(begin, newline - begin);
    if (begin == 0) text = without_byte_order_mark(text);
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    PreferenceRow row;
    row.number = number;
    row.end = end;
    reader.parse(text, row);
    fn(row);
  }
}

JsonlLine line_of(const PreferenceRow& row, const std::string& answer) {
  JsonlLine line;
  line.number = row.number;
  line.unit = row.unit;
  line.end = row.end;
  if (!row.is_chat) {
    line.kind = JsonlKind::kCompletion;
    line.text = row.prompt + answer;
    line.completion = row.prompt.size();
    return line;
  }
  line.kind = JsonlKind::kMessages;
  line.variables = row.variables;
  Json messages = Json::parse(row.prompt);
  for (Json& message : Json::parse(answer)) messages.push_back(std::move(message));
  line.text = written(messages);
  return line;
}

}  // namespace atl::data
