// Which bytes of a conversation the assistant says, for templates that do not mark them.

#include "atoll/base/error.h"
#include "atoll/text/chat_program.h"
#include "atoll/text/jinja_text.h"

namespace atl::text {

namespace {

// Templates end a turn with a token and often a newline that the model never has to say. The
// newline stays where it is what ends the turn: where the text before it is the content itself.
std::size_t end_of_turn(std::string_view said, const std::optional<std::string>& content) {
  using jinja::Ends;
  const std::string_view trimmed = jinja::strip(said, Ends::kRight);
  const std::string_view words = jinja::strip(
      content.has_value() ? std::string_view(*content) : std::string_view(), Ends::kRight);
  const bool ends_with_token = !trimmed.ends_with(words) || words.empty();
  return ends_with_token && !trimmed.empty() ? trimmed.size() : said.size();
}

[[noreturn]] void fail(const ChatProgram& program, std::size_t index, std::string_view what) {
  throw user_error(
      "{}: this template cannot be used with messages data: {}, so what the assistant says in "
      "message {} cannot be told from the rest; give a template with {{% generation %}} round "
      "the assistant's words, or conversations whose only answer is the last message",
      program.origin, what, index);
}

}  // namespace

std::vector<TextSpan> spans_by_prefixes(const ChatProgram& program, const jinja::Dict& base,
                                        const std::vector<ChatMessage>& messages,
                                        const jinja::Values& values, const std::string& whole,
                                        std::time_t now) {
  std::vector<TextSpan> spans;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    const std::string before = render_messages(program, base, values, i, true, now).text;
    const std::string with = i + 1 == messages.size()
                                 ? whole
                                 : render_messages(program, base, values, i + 1, false, now).text;
    if (!with.starts_with(before)) {
      fail(program, i, "the text before an answer is no beginning of the text with it");
    }
    if (!whole.starts_with(with)) {
      fail(program, i, "the text up to an answer changes when messages follow");
    }
    const std::size_t said =
        end_of_turn(std::string_view(with).substr(before.size()), messages[i].content);
    if (said == 0) continue;
    const TextSpan span{.begin = before.size(), .end = before.size() + said};
    if (!spans.empty() && span.begin < spans.back().end) {
      fail(program, i, "two answers overlap");
    }
    spans.push_back(span);
  }
  return spans;
}

}  // namespace atl::text
