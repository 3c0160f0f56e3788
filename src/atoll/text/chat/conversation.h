#pragma once

// What a chat template is given, and places in the text that it makes.

#include <cstddef>
#include <ctime>
#include <optional>
#include <string>

namespace atl {

/// One message of a conversation.
struct ChatMessage {
  std::string role;
  /// UTF-8; absent where the message has none (only tool calls) or has parts, which are in `extra`.
  std::optional<std::string> content;
  /// All other fields (tool_calls, name, reasoning_content, ...) as the text of a JSON object, or
  /// empty.
  std::string extra;
  /// False: nothing of an answer is to be learnt ("weight": 0, "train": false).
  bool has_loss = true;

  bool operator==(const ChatMessage&) const = default;
};

/// What a rendering depends on besides the messages.
struct ChatOptions {
  /// True: ends with what announces an answer of the assistant, for the model to continue.
  bool add_generation_prompt = false;
  /// More variables for the template as the text of a JSON object: {"tools": [...],
  /// "enable_thinking": false}; empty for none. They go before bos_token and the like.
  std::string variables;
  /// The time that strftime_now shows, in seconds since 1970 (shown in local time); the present
  /// where absent. A fixed one makes the text of templates with a date repeatable.
  std::optional<std::time_t> now;
};

/// What is learnt of conversations.
struct ChatTraining {
  /// True: the last answer alone has a loss.
  bool last_only = false;
  /// True: where the template writes an answer in another way when messages follow (most often it
  /// leaves the thinking out), each answer is learnt from a text of its own, which ends with it.
  bool keep_thinking = false;
  /// True: special tokens that a message spells are text.
  bool literal_content = false;
};

/// A part of a text, in bytes: [begin, end).
struct TextSpan {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool operator==(const TextSpan&) const = default;
};

}  // namespace atl
