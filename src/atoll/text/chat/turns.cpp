#include "atoll/text/chat/turns.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/text/jinja/text.h"
#include "atoll/text/utf8.h"

namespace atl::text {

namespace {

using jinja::Dict;
using jinja::Output;
using jinja::Turn;
using jinja::Value;

std::optional<TextSpan> only_turn(const Output& output, std::size_t message) {
  std::optional<TextSpan> found;
  for (const Turn& turn : output.turns) {
    if (turn.message != message || turn.begin == turn.end) continue;
    if (found) return std::nullopt;
    found = TextSpan{.begin = turn.begin, .end = turn.end};
  }
  return found;
}

bool writes(const Output& output, std::size_t message) {
  return std::any_of(output.turns.begin(), output.turns.end(), [&](const Turn& turn) {
    return turn.message == message && turn.begin < turn.end;
  });
}

std::string_view part(const std::string& text, TextSpan span) {
  return std::string_view(text).substr(span.begin, span.end - span.begin);
}

Value text_value(const std::string& bytes) {
  return Value(bytes);
}

Value list_value(jinja::Values items) {
  jinja::Sequence made{.items = std::move(items)};
  for (const Value& item : made.items) made.depth = std::max(made.depth, depth_of(item) + 1);
  return Value(jinja::List{std::make_shared<const jinja::Sequence>(std::move(made))});
}

// A copy of a dict with what `change` makes of each value.
template <typename Change>
Value changed(const Dict& dict, Change&& change) {
  Dict made;
  for (const auto& [key, value] : dict.entries) {
    std::string hashed;
    hash_key(key, hashed);
    made.set(key, hashed, change(key.is_string() ? key.string() : "", value));
  }
  return Value(std::make_shared<const Dict>(std::move(made)));
}

Value each(const Value& list, const auto& change) {
  jinja::Values items;
  for (const Value& item : list.items()) items.push_back(change(item));
  return list_value(std::move(items));
}

// A tool call with another name.
Value renamed_call(const Value& call, const std::string& words) {
  if (!call.is_dict()) return call;
  return changed(call.dict(), [&](const std::string& key, const Value& value) {
    if (key == "name" && value.is_string()) return text_value(words);
    return key == "function" ? renamed_call(value, words) : value;
  });
}

// A message that says other words in the same form: what is empty stays empty, and there are as
// many parts and calls as before.
Value with_words(const Value& message, const std::string& words, const std::string& name) {
  const auto replaced = [&](const Value& value) {
    return value.is_string() && !jinja::strip(value.string(), jinja::Ends::kBoth).empty()
               ? text_value(words)
               : value;
  };
  const auto part_replaced = [&](const Value& value) {
    if (!value.is_dict()) return value;
    return changed(value.dict(), [&](const std::string& key, const Value& inner) {
      return key == "text" ? replaced(inner) : inner;
    });
  };
  return changed(message.dict(), [&](const std::string& key, const Value& value) {
    const bool is_list = value.is(jinja::Kind::kList);
    if (key == "content") return is_list ? each(value, part_replaced) : replaced(value);
    if (key == "reasoning_content" || key == "thinking" || key == "reasoning") {
      return replaced(value);
    }
    if (key != "tool_calls" || !is_list) return value;
    return each(value, [&](const Value& call) { return renamed_call(call, name); });
  });
}

std::size_t common_characters(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  auto count = static_cast<std::size_t>(ends.first - a.begin());
  const auto continues = [&](std::size_t at) {
    return at < a.size() && (static_cast<unsigned char>(a[at]) & 0xC0U) == 0x80U;
  };
  while (count > 0 && continues(count)) --count;
  return count;
}

}  // namespace

std::string unused_character(std::string_view text) {
  constexpr char32_t kFirst = 0xE000;  // Unicode's characters for private use
  constexpr char32_t kLast = 0xF8FF;
  std::string bytes;
  for (char32_t code = kFirst; code <= kLast; ++code) {
    bytes.clear();
    append_utf8(code, bytes);
    if (text.find(bytes) == std::string_view::npos) break;
  }
  return bytes;
}

AnswerTurns::AnswerTurns(const ChatProgram& program, const Dict& base,
                         const std::vector<ChatMessage>& messages, const jinja::Values& values,
                         const Output& whole, std::time_t now)
    : program_(program),
      base_(base),
      messages_(messages),
      values_(values),
      whole_(whole),
      now_(now),
      mark_(unused_character(whole.text)) {}

std::optional<TextSpan> AnswerTurns::turn_of(std::size_t message) const {
  return only_turn(whole_, message);
}

std::string AnswerTurns::mark(std::size_t message) const {
  return fmt::format("{}{}{}", mark_, message, mark_);
}

AnswerTurns::Probe AnswerTurns::render_probe(std::optional<std::size_t> only) const {
  jinja::Values values = values_;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (messages_[i].role != "assistant" || only.value_or(i) != i) continue;
    // A tool's answer may show the name of the call, so that this is no mark of the words.
    values[i] = with_words(values[i], mark(i), fmt::format("{}call", mark_));
  }
  try {
    return {.output = render_messages(program_, base_, values, values.size(), false, now_),
            .problem = {}};
  } catch (const Error& error) {
    return {.output = {},
            .problem = fmt::format("the template refuses other words in it ({})", error.what())};
  }
}

// Other words in all answers at once, which is one rendering for all; where the template refuses
// these, in the one answer.
const AnswerTurns::Probe& AnswerTurns::probe_of(std::size_t message) {
  if (!of_all_) of_all_ = render_probe(std::nullopt);
  if (of_all_->problem.empty()) return *of_all_;
  const auto [at, added] = of_one_.try_emplace(message);
  if (added) at->second = render_probe(message);
  return at->second;
}

// Why the turn is not all that the answer's words decide; empty when it is.
std::string AnswerTurns::problem_of_probe(std::size_t message, const Probe& probe) const {
  if (!probe.problem.empty()) return probe.problem;
  const auto turn = only_turn(probe.output, message);
  if (!turn) return "the template writes other words in another place";
  const std::string sought = mark(message);
  const std::string& text = probe.output.text;
  for (std::size_t at = text.find(sought); at != std::string::npos;
       at = text.find(sought, at + sought.size())) {
    if (at < turn->begin || at + sought.size() > turn->end) {
      return "the template also writes its words elsewhere than in its turn";
    }
  }
  return "";
}

// Whether the message has no words, and the template's loop writes nothing for it.
bool AnswerTurns::is_silent(std::size_t message) const {
  const std::optional<std::string>& content = messages_[message].content;
  const bool has_words = !messages_[message].extra.empty() ||
                         jinja::strip(content.value_or(""), jinja::Ends::kBoth) != "";
  return !has_words && !writes(whole_, message) &&
         std::any_of(whole_.turns.begin(), whole_.turns.end(),
                     [&](const Turn& turn) { return turn.message == message; });
}

// Where in `before` the announcement begins: behind the turns of all messages. Nothing when the
// template treats the message before the answer in another way than in the whole.
std::optional<std::size_t> AnswerTurns::announcement(std::size_t message,
                                                     const Output& before) const {
  if (message > 0 && writes(before, message - 1) != writes(whole_, message - 1)) {
    return std::nullopt;
  }
  std::optional<std::size_t> end;
  for (const Turn& turn : before.turns) {
    if (turn.begin < turn.end) end = std::max(end.value_or(0), turn.end);
  }
  if (end) return end;
  const auto turn = std::find_if(whole_.turns.begin(), whole_.turns.end(), [&](const Turn& each) {
    return each.message == message && each.begin < each.end;
  });
  if (turn == whole_.turns.end()) return std::nullopt;
  const auto at = before.loop_ends.find(turn->loop);
  return at == before.loop_ends.end() ? std::nullopt : std::optional(at->second);
}

AnswerPlace AnswerTurns::find(std::size_t message, const Output& before) {
  const auto refused = [](std::string problem) {
    return AnswerPlace{.span = {}, .problem = std::move(problem)};
  };
  const auto turn = turn_of(message);
  if (!turn && is_silent(message)) return {};
  if (!turn) {
    return refused(writes(whole_, message) ? "several turns of the template's loops write it"
                                           : "no turn of a loop over the messages writes it");
  }
  const Probe& probe = probe_of(message);
  if (auto problem = problem_of_probe(message, probe); !problem.empty()) return refused(problem);
  AnswerPlace place{.span = *turn, .problem = {}};
  if (message + 1 == messages_.size()) place.span.end = whole_.text.size();
  const std::size_t beginning = before.text.size();
  if (beginning >= turn->begin && beginning <= turn->end && whole_.text.starts_with(before.text)) {
    place.span.begin = beginning;
    return place;
  }
  const auto announced_at = announcement(message, before);
  if (!announced_at) return refused("the messages before it stand in another order there");
  const std::string_view said = part(whole_.text, *turn);
  const std::string_view announced = std::string_view(before.text).substr(*announced_at);
  if (said.starts_with(announced)) {
    place.span.begin = turn->begin + announced.size();
    return place;
  }
  // The answer is announced in other words than the last one would be: what is announced ends
  // where the answer's own words first make a difference.
  const auto other = only_turn(probe.output, message);
  const std::string_view other_said = part(probe.output.text, *other);
  if (other_said.find(mark_) == std::string_view::npos) {
    return refused("it is announced in other words than an answer that is to be written");
  }
  place.span.begin = turn->begin + common_characters(said, other_said);
  return place;
}

}  // namespace atl::text
