#pragma once

// Task files: questions with known answers, one JSON object a line.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/data/fields.h"
#include "atoll/text/chat/template.h"

namespace atl::serve {

/// A question and how its answer is judged.
struct TaskItem {
  std::int64_t line = 0;              ///< of the file, from 1
  std::string prompt;                 ///< what the answer continues
  std::vector<ChatMessage> messages;  ///< a conversation instead; empty: there is a prompt
  std::string variables;              ///< for the chat template: a JSON object; empty for none
  std::vector<std::string> choices;   ///< of a multiple choice; empty: the answer is generated
  std::size_t answer = 0;             ///< the choice that is right
  std::vector<std::string> answers;   ///< to generate: any of these is right

  bool is_multiple_choice() const { return !choices.empty(); }
};

/// Reads the lines of a task file that are not blank, the first `limit` of them (0: all):
/// {"prompt": ..., "choices": [...], "answer": an index or a choice's text} is a multiple choice,
/// {"prompt": ..., "answer": ...} or "answers": [...] is to be generated, and "messages" may stand
/// for "prompt", with "tools" and "chat_template_kwargs" beside them; `fields` says what the keys
/// are called. Choices may be ARC's {"text": [...], "label": [...]}, of which the answer is a
/// label; of other choices it may also be an index as text ("3") or a letter ("D"). Other keys are
/// not looked at. Throws Error(kUser) naming `path`, line and field
/// for a line that is malformed, and for a file without items.
std::vector<TaskItem> read_task(std::string_view content, const std::string& path,
                                std::int64_t limit = 0, const data::Fields& fields = {});

}  // namespace atl::serve
