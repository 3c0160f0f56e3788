#pragma once

// Calls of tools that a model writes into its answer, in the two forms that most models learn.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::serve::api {

/// A call that a model has written.
struct ToolCall {
  std::string name;
  std::string arguments;  ///< a JSON object as text
};

/// How a model writes calls, as far as its chat template tells.
struct ToolCallForm {
  bool is_tagged = false;  ///< each between <tool_call> and </tool_call>; else the object alone
  std::string arguments = "arguments";  ///< what the member with the arguments is called
};

/// The call that a text is: {"name": ..., "arguments": {...}}, or "parameters" for "arguments".
/// Nothing for another text, or a name that is not in `names`.
std::optional<ToolCall> parse_tool_call(std::string_view text,
                                        const std::vector<std::string>& names);

/// What a part of an answer has become.
struct AnswerPart {
  std::string reasoning;  ///< what was thought before the answer
  std::string text;
  std::vector<ToolCall> calls;
};

/// Finds calls while an answer comes: <tool_call>{...}</tool_call> anywhere (Qwen, Hermes), or an
/// answer that is one call and nothing else (Llama 3). What looks like a call and is none is text.
class ToolCallFinder {
 public:
  /// `names`: of the tools that there are; empty: nothing is looked for. `only_one`: the answer is
  /// over behind the first call.
  ToolCallFinder(std::vector<std::string> names, bool only_one)
      : names_(std::move(names)), only_one_(only_one) {}

  AnswerPart push(std::string_view text);
  /// The rest, at the end of the answer.
  AnswerPart finish();
  bool has_calls() const { return has_calls_; }
  /// Whether nothing more is wanted.
  bool is_over() const { return only_one_ && has_calls_; }

 private:
  void take(AnswerPart& part);
  void end_call(std::size_t end, AnswerPart& part);

  std::vector<std::string> names_;
  bool only_one_;
  bool has_calls_ = false;
  bool has_begun_ = false;  // something was shown, so that the answer is not one bare call
  bool is_inside_ = false;  // held_ begins with the opening tag
  std::string held_;
};

}  // namespace atl::serve::api
