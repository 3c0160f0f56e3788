#pragma once

// Which keys of a line of JSONL hold what atoll looks for.

#include <string>
#include <string_view>
#include <vector>

namespace atl::data {

/// For each field the key that holds it, or a text with keys in braces ("Question: {question}\n").
/// In such a text "{{" and "}}" are braces.
struct Fields {
  std::string text = "text";
  std::string prompt = "prompt";
  std::string completion = "completion";
  std::string chosen = "chosen";      ///< the better of two answers
  std::string rejected = "rejected";  ///< the worse one
  std::string label = "label";        ///< whether an answer is good
  std::string messages = "messages";
  std::string role = "role";            ///< in a message
  std::string content = "content";      ///< in a message
  std::vector<std::string> roles = {};  ///< "human=user": what roles are called here
  bool chat = false;                    ///< prompt and completion are messages of a conversation
  std::string choices = "choices";      ///< of a task
  std::string answer = "answer";        ///< of a task
  std::string answers = "answers";      ///< of a task

  bool operator==(const Fields&) const = default;
  /// Whether messages are called as atoll calls them.
  bool has_plain_messages() const {
    return role == "role" && content == "content" && roles.empty();
  }
};

/// Sets the field that "prompt=question" names, `option` being what it was given with. A role is
/// "roles=human=user", as often as there are some. Throws Error(kUser) for one that is none.
void set_field(Fields& fields, std::string_view assignment, const std::string& option);

/// Throws Error(kUser) naming `prefix` and the field for one that is malformed.
void check_fields(const Fields& fields, const std::string& prefix);

/// A JSON array of messages with "role" and "content", made of one in which they are called
/// otherwise. Without `roles`, and with a role called "from", those of ShareGPT are known: human,
/// gpt. Throws Error(kUser) naming `origin`, message and key.
std::string plain_messages(const Fields& fields, std::string_view json, const std::string& origin);

}  // namespace atl::data
