#pragma once

// Task items as tokens, and where in them an answer begins.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/serve/task.h"
#include "atoll/text/chat/template.h"
#include "atoll/text/tokenizer.h"

namespace atl::serve {

/// An item as a model reads it.
struct EncodedItem {
  std::string prompt;  ///< the text: the prompt, or the conversation as the template writes it
  bool is_chat = false;
  /// What is given: the prompt's tokens, those apart that merge with a choice; at least one.
  std::vector<std::int32_t> context;
  /// Multiple choice: the tokens of each choice after the context; at least one each.
  std::vector<std::vector<std::int32_t>> continuations;
  std::int64_t dropped = 0;  ///< tokens that drop_left has taken from the context
};

/// Makes tokens of items.
class TaskEncoder {
 public:
  /// `chat` renders messages, and with `wrap_prompts` each prompt as one message of a user; `path`
  /// names the task file in errors.
  TaskEncoder(const Tokenizer& tokenizer, std::optional<ChatTemplate> chat, bool wrap_prompts,
              std::string path);

  /// Encodes an item. Each choice is encoded together with its prompt, and the white space that
  /// ends the prompt counts as the choice's, as in EleutherAI's lm-evaluation-harness
  /// (`_encode_pair`). The context is what the prompt alone and the prompt with each choice have in
  /// common at their start, so that every choice is scored from the same token on, and on the
  /// tokens that its text really has. (The harness cuts by the prompt's number of tokens instead:
  /// the same wherever no token spans the boundary.) An empty prompt is the tokenizer's end of
  /// text: another document begins. Throws Error(kUser) naming the line for what cannot be encoded
  /// or rendered, and a choice without a token of its own.
  EncodedItem encode(const TaskItem& item);

 private:
  EncodedItem encode_item(const TaskItem& item);
  void encode_choices(const TaskItem& item, EncodedItem& encoded);
  std::vector<std::int32_t> tokens_of(const std::string& text, bool is_chat);

  const Tokenizer& tokenizer_;
  TokenEncoder encoder_;
  std::optional<ChatTemplate> chat_;
  bool wrap_prompts_;
  std::string path_;
};

/// The positions that answering an item takes, `max_new_tokens` being those of a generated answer:
/// the last token of either goes through no layer.
std::int64_t positions_needed(const EncodedItem& item, std::int64_t max_new_tokens);

/// Takes `count` tokens from the start of the context. Returns false, with nothing changed, when
/// none would be left.
bool drop_left(EncodedItem& item, std::int64_t count);

}  // namespace atl::serve
