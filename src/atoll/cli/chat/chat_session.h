#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/serve/batch/generator.h"
#include "atoll/text/chat/template.h"
#include "atoll/text/tokenizer.h"

namespace atl::cli {

/// A conversation with a model: what was said, and the answers, which the model gives as its chat
/// template wants it.
class ChatSession {
 public:
  /// How answers are made.
  struct Settings {
    serve::SamplingOptions sampling = {.temperature = 0.8, .top_p = 0.95, .seed = 1};
    double min_p = 0;
    double repetition_penalty = 1;
    std::int64_t max_tokens = 0;  ///< of an answer; 0: as many as there is room for

    /// Throws Error(kUser) naming the setting that makes no sense.
    void validate() const;
  };
  /// What is known of an answer.
  struct Answer {
    serve::GenerationResult result;
    double seconds_to_first = 0;
    double seconds = 0;  ///< from the first token to the last
  };

  /// `generator` must outlive this. `stops`: the tokens that end an answer, ascending.
  ChatSession(serve::Generator& generator, Tokenizer tokenizer, ChatTemplate chat,
              std::vector<std::int32_t> stops, const Settings& settings);

  const std::vector<ChatMessage>& messages() const { return messages_; }
  Settings& settings() { return settings_; }
  /// The system message; empty: none.
  void set_system(const std::string& text);
  void say(const std::string& text);
  /// Takes the last message and its answer back; false: there is none.
  bool undo();
  /// Takes the last answer back, so that the next one is another; false: there is none.
  bool take_back_answer();
  void clear();
  /// Goes back to what messages() was.
  void restore(std::vector<ChatMessage> messages) { messages_ = std::move(messages); }

  /// Answers what was said last, calling `show` with the text as it comes; it ends early when
  /// `wants_end` says so, which is asked often. Throws Error(kUser) for a conversation that is
  /// longer than the model sees, and Error where the model fails; what was said then stays.
  Answer answer(const std::function<void(std::string_view text)>& show,
                const std::function<bool()>& wants_end);

  /// The conversation as a line of JSON that training and load() read: {"messages": [...]}.
  void save(const std::filesystem::path& path) const;
  /// Throws Error(kUser) for a file that is no such line.
  void load(const std::filesystem::path& path);

 private:
  serve::GenerationRequest request() const;

  serve::Generator& generator_;
  Tokenizer tokenizer_;
  ChatTemplate chat_;
  std::vector<std::int32_t> stops_;
  Settings settings_;
  std::vector<ChatMessage> messages_;
  std::int64_t answers_ = 0;  // made so far: each is drawn anew
};

}  // namespace atl::cli
