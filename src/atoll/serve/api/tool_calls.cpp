#include "atoll/serve/api/tool_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/serve/api/json_text.h"
#include "atoll/serve/api/stop_finder.h"

namespace atl::serve::api {

namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr const char* kWhiteSpace = " \t\r\n";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kWhiteSpace) == text.npos;
}

}  // namespace

std::optional<ToolCall> parse_tool_call(std::string_view text,
                                        const std::vector<std::string>& names) {
  Json json;
  try {
    json = parse_ordered_json(text, "a call of a tool");
  } catch (const Error&) {
    return std::nullopt;  // not a call but a text
  }
  if (!json.is_object()) return std::nullopt;
  const auto name = json.find("name");
  const bool is_known =
      name != json.end() && name->is_string() &&
      std::find(names.begin(), names.end(), name->get<std::string>()) != names.end();
  if (!is_known) return std::nullopt;
  auto arguments = json.find("arguments");
  if (arguments == json.end()) arguments = json.find("parameters");
  if (arguments == json.end()) return ToolCall{name->get<std::string>(), "{}"};
  if (!arguments->is_object()) return std::nullopt;
  return ToolCall{name->get<std::string>(), to_text(*arguments)};
}

AnswerPart ToolCallFinder::push(std::string_view text) {
  AnswerPart part;
  if (is_over()) return part;
  if (names_.empty()) {
    part.text = text;
    return part;
  }
  held_ += text;
  take(part);
  if (!part.text.empty()) has_begun_ = true;
  return part;
}

void ToolCallFinder::take(AnswerPart& part) {
  while (!is_over()) {
    if (is_inside_) {
      const std::size_t end = held_.find(kClose);
      if (end == held_.npos) return;
      end_call(end, part);
      continue;
    }
    if (!has_begun_ && part.text.empty() && !has_calls_) {
      // White space may stand before a bare call, or before the first tag.
      const std::size_t first = held_.find_first_not_of(kWhiteSpace);
      if (first == held_.npos || held_[first] == '{') return;
    }
    const std::size_t open = held_.find(kOpen);
    const std::size_t sure = open != held_.npos ? open : held_.size() - begun_bytes(held_, kOpen);
    const std::string_view before = std::string_view(held_).substr(0, sure);
    // Between calls there is white space that nobody wants.
    const bool is_between = is_blank(before) && (has_calls_ || open != held_.npos);
    if (!is_between) part.text += before;
    held_.erase(0, sure);
    if (open == held_.npos) return;
    is_inside_ = true;
  }
}

void ToolCallFinder::end_call(std::size_t end, AnswerPart& part) {
  is_inside_ = false;
  const std::string_view body = std::string_view(held_).substr(kOpen.size(), end - kOpen.size());
  if (auto call = parse_tool_call(body, names_)) {
    part.calls.push_back(std::move(*call));
    has_calls_ = true;
  } else {
    part.text += held_.substr(0, end + kClose.size());
  }
  held_.erase(0, end + kClose.size());
}

AnswerPart ToolCallFinder::finish() {
  AnswerPart part;
  if (is_over()) return part;
  const std::string rest = std::exchange(held_, "");
  if (is_inside_) {
    // The model ended behind the call, without the tag.
    if (auto call = parse_tool_call(std::string_view(rest).substr(kOpen.size()), names_)) {
      has_calls_ = true;
      part.calls.push_back(std::move(*call));
      return part;
    }
  } else if (!has_begun_ && !has_calls_) {
    if (auto call = parse_tool_call(rest, names_)) {
      has_calls_ = true;
      part.calls.push_back(std::move(*call));
      return part;
    }
  }
  const bool is_wanted = !has_calls_ || !is_blank(rest);
  if (is_wanted) part.text = rest;
  return part;
}

}  // namespace atl::serve::api
