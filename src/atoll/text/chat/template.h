#pragma once

// Conversations as the text that a model was trained on: its chat template, a Jinja program that
// comes with the model (Hugging Face's apply_chat_template).

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/chat/conversation.h"

namespace atl {

class Tokenizer;

namespace text {
struct ChatProgram;
}

/// Reads a JSON array of messages, each an object with "role" and mostly "content"; fields that are
/// null are left out, as transformers does. `origin` names the text in errors. Throws
/// Error(kUser) naming the message and the field, also for a "weight" other than 0 and 1, and for a
/// "train" that wants to learn what somebody else than the assistant says.
std::vector<ChatMessage> parse_messages(std::string_view json, std::string_view origin);

/// A conversation to fine-tune on.
struct TrainingText {
  std::string text;
  /// What the assistant says in messages that have a loss, and the token that ends its turn; in
  /// order, without overlaps. The loss is taken on these only.
  std::vector<TextSpan> trained;
  /// The bytes at which special tokens begin that a message spells and that are to be text;
  /// ascending.
  std::vector<std::size_t> literal;
  /// The first special token that a message spells; empty: none does.
  std::string spelled;
};

/// A chat template as a directory has it.
struct NamedChatTemplate {
  std::string name;    ///< "default", "tool_use", "rag", ...
  std::string source;  ///< Jinja
  std::string origin;  ///< the file, for messages
};

/// The chat templates of a Hugging Face directory, in the order of its files: chat_template.jinja
/// ("default"), else "chat_template" in tokenizer_config.json (a text, which is "default", or a
/// list of named ones), else in chat_template.json, which processors have; then each
/// additional_chat_templates/NAME.jinja of another name, sorted. Throws Error(kUser) for files that
/// are damaged.
std::vector<NamedChatTemplate> chat_templates_in(const std::filesystem::path& directory);

/// The chat template of a model. Immutable, so any number of threads may use one; copies share the
/// same program. A hostile template ends in an Error: steps, depth and output are bounded.
class ChatTemplate {
 public:
  /// Reads a template of chat_templates_in(directory): the one called `name`, whether there are
  /// tools or not; without a name "default", and "tool_use" when there are tools, as transformers
  /// chooses. bos_token and the like come from tokenizer_config.json.
  /// Throws Error(kUser) when there is no such template, naming those that there are and what else
  /// can be given.
  static ChatTemplate from_directory(const std::filesystem::path& directory,
                                     std::string_view name = {});
  /// Reads a template; `origin` is its path for messages. Throws Error(kUser) naming origin, line
  /// and construct for one that is malformed or uses what is not supported.
  static ChatTemplate from_text(std::string_view source, std::string_view bos_token,
                                std::string_view eos_token, std::string_view origin);

  /// The text of a conversation. Throws Error(kUser) when the template refuses the messages, fails
  /// on them, or exceeds its bounds.
  std::string render(const std::vector<ChatMessage>& messages,
                     const ChatOptions& options = {}) const;

  /// Whether this text stands somewhere in the template.
  bool mentions(std::string_view text) const;

  /// Whether the template may write the time: its text can then differ from day to day.
  bool shows_time() const;

  /// The text of a conversation with the parts that the assistant says: what is written inside
  /// {% generation %} where the template has it, else what each answer adds to the text, from
  /// behind the words that announce it to the token that ends its turn. It is found by rendering
  /// the conversation up to the answer, or by the turn of the template's loop that writes it.
  /// add_generation_prompt is not looked at. Throws as render does, and Error(kUser) naming the
  /// first answer whose place is not certain, and why.
  TrainingText render_for_training(const std::vector<ChatMessage>& messages,
                                   const ChatOptions& options = {}) const;

  /// The texts to learn a conversation from as `how` says: one, or with `keep_thinking` perhaps one
  /// for each answer that has a loss. `tokenizer` says which special tokens messages may spell.
  /// Throws as render_for_training, and with `literal_content` where the template looks for a
  /// special token in a message, so that other spellings give another text.
  std::vector<TrainingText> training_texts(std::vector<ChatMessage> messages,
                                           const ChatTraining& how, const Tokenizer& tokenizer,
                                           const ChatOptions& options = {}) const;

 private:
  // Both with options.now.
  bool writes_answers_alike(const std::vector<ChatMessage>& messages,
                            const ChatOptions& options) const;
  void find_literal(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                    const ChatOptions& options, TrainingText& text) const;

  explicit ChatTemplate(std::shared_ptr<const text::ChatProgram> program);

  // Shared: immutable, and copied into every thread that prepares data.
  std::shared_ptr<const text::ChatProgram> program_;
};

}  // namespace atl
