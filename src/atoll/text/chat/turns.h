#pragma once

// Where an answer stands in the text of a whole conversation, for templates that write the messages
// before it in another way when messages follow.

#include <cstddef>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/chat/program.h"

namespace atl::text {

/// A character, for private use by Unicode, that `text` does not have.
std::string unused_character(std::string_view text);

/// Where an answer stands, or why that is not certain.
struct AnswerPlace {
  TextSpan span;
  std::string problem;  ///< Empty: `span` is certain.
};

/// Finds answers by the turns of the template's loop over the messages: what the turn of an answer
/// wrote is the answer with what the template puts round it. Two more renderings tell the rest: the
/// one that the model would go on from says how an answer is announced, and one with other words in
/// the answers says what depends on them. All references must outlive this.
class AnswerTurns {
 public:
  AnswerTurns(const ChatProgram& program, const jinja::Dict& base,
              const std::vector<ChatMessage>& messages, const jinja::Values& values,
              const jinja::Output& whole, std::time_t now);

  /// What turn of `whole` wrote the message; nothing unless exactly one wrote anything.
  std::optional<TextSpan> turn_of(std::size_t message) const;

  /// The place of the answer `message` in `whole`, from after what announces an answer to the end
  /// of its turn. `before` is the rendering of the messages before it, with the announcement.
  AnswerPlace find(std::size_t message, const jinja::Output& before);

 private:
  // A rendering of the whole with other words in some answers.
  struct Probe {
    jinja::Output output;
    std::string problem;  // why there is none
  };

  bool is_silent(std::size_t message) const;
  std::optional<std::size_t> announcement(std::size_t message, const jinja::Output& before) const;
  std::string problem_of_probe(std::size_t message, const Probe& probe) const;
  const Probe& probe_of(std::size_t message);
  Probe render_probe(std::optional<std::size_t> only) const;
  std::string mark(std::size_t message) const;

  const ChatProgram& program_;
  const jinja::Dict& base_;
  const std::vector<ChatMessage>& messages_;
  const jinja::Values& values_;
  const jinja::Output& whole_;
  std::time_t now_;
  std::string mark_;  // a character that the text does not have
  std::optional<Probe> of_all_;
  std::map<std::size_t, Probe> of_one_;
};

}  // namespace atl::text
