#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/chat/conversation.h"
#include "atoll/text/jinja/ast.h"
#include "atoll/text/jinja/eval.h"

namespace atl::text {

/// What is behind a ChatTemplate: the parsed template and the tokens that it may name.
struct ChatProgram {
  std::string origin;
  std::string sources;  ///< Of both trees, one after the other.
  jinja::Tree main;
  std::optional<jinja::Tree> with_tools;                ///< Used when there are tools.
  jinja::Dict tokens;                                   ///< bos_token, eos_token and so on.
  mutable std::atomic<bool> has_told_of_tools = false;  ///< by warn_of_unseen_tools

  /// The tree that transformers would choose for these variables.
  const jinja::Tree& choose(const jinja::Dict& variables) const;
};

/// The messages with one text in the place of text parts, unless the template takes these itself.
/// Throws Error(kUser) naming the message for a part that is no text, in a template that takes
/// text alone.
std::vector<ChatMessage> with_whole_content(const ChatProgram& program, const jinja::Dict& base,
                                            const std::vector<ChatMessage>& messages,
                                            std::time_t now);
/// Warns, once for a program, where there are tools and the template does not look at them.
void warn_of_unseen_tools(const ChatProgram& program, const jinja::Dict& base);

/// The messages as values that templates see; fields in the order role, content, extra.
jinja::Values message_values(const std::vector<ChatMessage>& messages);
/// The variables that do not depend on the messages: tokens, options.variables, and None for what
/// transformers always passes.
jinja::Dict base_variables(const ChatProgram& program, const ChatOptions& options);
/// `base` with the first `count` messages and add_generation_prompt.
jinja::Dict message_variables(const jinja::Dict& base, const jinja::Values& messages,
                              std::size_t count, bool add_generation_prompt);
/// Renders the first `count` messages.
jinja::Output render_messages(const ChatProgram& program, const jinja::Dict& base,
                              const jinja::Values& messages, std::size_t count,
                              bool add_generation_prompt, std::time_t now);
/// Finds what the assistant says by rendering the conversation up to each answer; in time that is
/// linear in the messages for templates that are a loop over them (jinja::render_prefixes). An
/// answer before which the whole has other text than such a rendering is found by AnswerTurns.
/// Throws Error(kUser) for an answer whose place is not certain.
std::vector<TextSpan> spans_by_prefixes(const ChatProgram& program, const jinja::Dict& base,
                                        const std::vector<ChatMessage>& messages,
                                        const jinja::Values& values, const jinja::Output& whole,
                                        std::time_t now);

/// Whether each answer is written as if it were the last: then one text serves for all of them.
bool writes_answers_alike(const ChatProgram& program, const jinja::Dict& base,
                          const std::vector<ChatMessage>& messages, const jinja::Values& values,
                          const std::string& whole, std::time_t now);

}  // namespace atl::text
