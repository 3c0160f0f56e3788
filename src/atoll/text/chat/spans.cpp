// Which bytes of a conversation the assistant says, for templates that do not mark them.

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/text/chat/program.h"
#include "atoll/text/chat/turns.h"
#include "atoll/text/jinja/prefixes.h"
#include "atoll/text/jinja/text.h"

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
      "{}: what the assistant says in message {} cannot be told from the rest of the text: {}; "
      "give "
      "a template with {{% generation %}} round the assistant's words, or set data.chat_train to "
      "\"last\" (--chat-train last) and end conversations with the answer to be learnt",
      program.origin, index, what);
}

// Where an answer and the template's words round it stand: where the text of the messages before it
// ends, announcing an answer, and that of the messages with it.
struct Place {
  std::size_t message = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

// Ends of the texts of the first so many messages, each of which must be a beginning of `whole`.
std::optional<std::vector<std::size_t>> ends_in(std::string_view whole,
                                                const std::optional<jinja::PrefixTexts>& found) {
  if (!found) return std::nullopt;
  const std::size_t common = common_prefix(found->written, whole);
  std::vector<std::size_t> ends;
  for (const auto& [shared, rest] : found->texts) {
    if (shared > common || !whole.substr(shared).starts_with(rest)) return std::nullopt;
    ends.push_back(shared + rest.size());
  }
  return ends;
}

// The places of all answers from two renderings of the whole; nothing when these do not tell, also
// when the answers' places cannot be told at all.
std::optional<std::vector<Place>> places_at_once(const ChatProgram& program,
                                                 const jinja::Dict& base,
                                                 const std::vector<ChatMessage>& messages,
                                                 const jinja::Values& values,
                                                 const std::string& whole, std::time_t now) {
  std::vector<std::size_t> before;
  std::vector<std::size_t> with;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    before.push_back(i);
    if (i + 1 < messages.size()) with.push_back(i + 1);
  }
  const auto ends = [&](const std::vector<std::size_t>& counts, bool add_generation_prompt) {
    const auto variables = message_variables(base, values, values.size(), add_generation_prompt);
    return ends_in(whole, jinja::render_prefixes(program.choose(variables), program.origin,
                                                 variables, now, counts));
  };
  const auto begin = ends(before, true);
  if (!begin) return std::nullopt;
  auto end = with.empty() ? std::vector<std::size_t>() : ends(with, false);
  if (!end) return std::nullopt;
  if (with.size() < before.size()) end->push_back(whole.size());
  std::vector<Place> places;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if ((*begin)[i] > (*end)[i]) return std::nullopt;
    places.push_back({before[i], (*begin)[i], (*end)[i]});
  }
  return places;
}

// The same for any template, in quadratic time: from renderings of the beginnings, and where these
// are none of the whole, from the turns that wrote the answers.
std::vector<Place> places_one_by_one(const ChatProgram& program, const jinja::Dict& base,
                                     const std::vector<ChatMessage>& messages,
                                     const jinja::Values& values, const jinja::Output& output,
                                     std::time_t now) {
  const std::string& whole = output.text;
  AnswerTurns turns(program, base, messages, values, output, now);
  std::vector<Place> places;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant" || !messages[i].has_loss) continue;
    const jinja::Output before = render_messages(program, base, values, i, true, now);
    const bool is_last = i + 1 == messages.size();
    const bool begins = whole.starts_with(before.text);
    if (begins) {
      const std::string with =
          is_last ? whole : render_messages(program, base, values, i + 1, false, now).text;
      if (with.starts_with(before.text) && whole.starts_with(with)) {
        places.push_back({i, before.text.size(), with.size()});
        continue;
      }
    }
    const AnswerPlace found = turns.find(i, before);
    if (!found.problem.empty()) {
      fail(program, i,
           fmt::format("{}, and {}",
                       begins ? "the text up to the answer changes when messages follow"
                              : "the text before the answer is no beginning of the text with it",
                       found.problem));
    }
    places.push_back({i, found.span.begin, found.span.end});
  }
  return places;
}

}  // namespace

bool writes_answers_alike(const ChatProgram& program, const jinja::Dict& base,
                          const std::vector<ChatMessage>& messages, const jinja::Values& values,
                          const std::string& whole, std::time_t now) {
  if (places_at_once(program, base, messages, values, whole, now)) return true;
  for (std::size_t i = 0; i + 1 < messages.size(); ++i) {
    if (messages[i].role != "assistant" || !messages[i].has_loss) continue;
    const auto with = render_messages(program, base, values, i + 1, false, now);
    if (!whole.starts_with(with.text)) return false;
  }
  return true;
}

std::vector<TextSpan> spans_by_prefixes(const ChatProgram& program, const jinja::Dict& base,
                                        const std::vector<ChatMessage>& messages,
                                        const jinja::Values& values, const jinja::Output& whole,
                                        std::time_t now) {
  const auto at_once = places_at_once(program, base, messages, values, whole.text, now);
  std::vector<TextSpan> spans;
  for (const auto& [message, begin, end] :
       at_once ? *at_once : places_one_by_one(program, base, messages, values, whole, now)) {
    const std::size_t said = end_of_turn(std::string_view(whole.text).substr(begin, end - begin),
                                         messages[message].content);
    if (said == 0 || !messages[message].has_loss) continue;
    const TextSpan span{.begin = begin, .end = begin + said};
    if (!spans.empty() && span.begin < spans.back().end) {
      fail(program, message, "two answers overlap");
    }
    spans.push_back(span);
  }
  return spans;
}

}  // namespace atl::text
