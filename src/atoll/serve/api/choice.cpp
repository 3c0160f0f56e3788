#include "atoll/serve/api/choice.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "atoll/serve/api/json_text.h"

namespace atl::serve::api {

namespace {

double seconds_between(Choice::Clock::time_point from, Choice::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Choice::Choice(ChoiceOptions options, std::shared_ptr<Answer> answer, Serving& shared,
               Clock::time_point came)
    : options_(std::move(options)),
      answer_(std::move(answer)),
      shared_(shared),
      times_(shared.times),
      text_(shared.model.tokenizer, options_.stops),
      reasoning_(options_.begins_in_reasoning),
      finder_(options_.tool_names, options_.has_one_call),
      logprobs_(shared.model.tokenizer, answer_->head().is_chat, answer_->head().top_logprobs),
      came_(came) {}

void Choice::open() {
  const AnswerHead& head = answer_->head();
  if (head.is_chat) {
    if (head.streams) {
      answer_->write_chunk(chunk(R"("delta":{"role":"assistant","content":""})", nullptr),
                           options_.index == 0 ? head.more : "");
    }
    return;
  }
  if (!options_.echoes) {
    text_.follow(options_.prompt);
  } else if (head.top_logprobs < 0) {
    std::vector<TokenResult> prompt;
    for (const std::int32_t token : options_.prompt) prompt.push_back({.token = token, .top = {}});
    take(text_.echo(prompt));
  }
}

void Choice::on_begin() {
  began_ = Clock::now();
  has_begun_ = true;
  times_.queue.observe(seconds_between(came_, began_));
}

void Choice::on_prompt(std::span<const TokenResult> tokens) {
  std::vector<TokenResult> prompt = {{.token = options_.prompt.front(), .top = {}}};
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  take(text_.echo(prompt));
}

void Choice::observe_token() {
  const Clock::time_point now = Clock::now();
  if (has_token_) {
    times_.inter_token.observe(seconds_between(last_, now));
  } else {
    times_.first_token.observe(seconds_between(came_, now));
    if (has_begun_) times_.prefill.observe(seconds_between(began_, now));
    first_ = now;
  }
  has_token_ = true;
  last_ = now;
}

bool Choice::on_token(const TokenResult& token) {
  observe_token();
  take(text_.push(token));
  // Not whether the client is there still: the generator is told by cancel(), and counts it as
  // such.
  return !text_.has_stopped() && !finder_.is_over();
}

void Choice::take(const Piece& piece) {
  for (const PlacedToken& token : piece.tokens) {
    if (answer_->head().top_logprobs >= 0) logprobs_.add(token);
    if (answer_->head().returns_tokens) {
      ids_ += fmt::format("{}{}", ids_.empty() ? "" : ",", token.token.token);
    }
  }
  if (options_.splits_reasoning) {
    take_text(reasoning_.push(piece.text));
  } else {
    show(finder_.push(piece.text));
  }
}

void Choice::take_text(const ReasoningPart& part) {
  AnswerPart shown = finder_.push(part.text);
  shown.reasoning = part.reasoning;
  show(std::move(shown));
}

void Choice::show(AnswerPart part) {
  if (!answer_->head().streams) {
    part_.reasoning += part.reasoning;
    part_.text += part.text;
    std::move(part.calls.begin(), part.calls.end(), std::back_inserter(part_.calls));
  } else if (!part.reasoning.empty() || !part.text.empty() || !part.calls.empty()) {
    answer_->write_chunk(chunk(delta(part), nullptr));
  }
}

// The text, and of a chat its calls, of one chunk.
std::string Choice::delta(const AnswerPart& part) {
  if (!answer_->head().is_chat) return "\"text\":" + json_string(part.text);
  std::vector<std::string> members;
  if (!part.reasoning.empty()) {
    members.push_back("\"reasoning_content\":" + json_string(part.reasoning));
  }
  if (!part.text.empty()) members.push_back("\"content\":" + json_string(part.text));
  if (!part.calls.empty()) {
    members.push_back("\"tool_calls\":" + calls_json(part.calls, /*has_index=*/true));
  }
  return fmt::format("\"delta\":{{{}}}", fmt::join(members, ","));
}

std::string Choice::calls_json(const std::vector<ToolCall>& calls, bool has_index) {
  std::string list;
  for (const ToolCall& call : calls) {
    const std::string index = has_index ? fmt::format("\"index\":{},", num_calls_) : "";
    // Of the answer's id, so that a repeated conversation has other ids, and none has one twice.
    const std::string id =
        fmt::format("call_{}_{}_{}", answer_->head().id, options_.index, num_calls_++);
    list += fmt::format(
        "{}{{{}\"id\":{},\"type\":\"function\",\"function\":{{\"name\":{},\"arguments\":{}}}}}",
        list.empty() ? "" : ",", index, json_string(id), json_string(call.name),
        json_string(call.arguments));
  }
  return "[" + list + "]";
}

// Log-probabilities and ids of what is told with them.
std::string Choice::details() {
  std::string members = ",\"logprobs\":";
  const bool has_logprobs =
      answer_->head().top_logprobs >= 0 && (!logprobs_.is_empty() || !answer_->head().streams);
  members += has_logprobs ? logprobs_.take() : "null";
  if (answer_->head().returns_tokens) {
    members += fmt::format(",\"token_ids\":[{}]", std::exchange(ids_, ""));
    if (!answer_->head().is_chat && !std::exchange(has_told_prompt_, true)) {
      members += fmt::format(",\"prompt_token_ids\":[{}]", fmt::join(options_.prompt, ","));
    }
  }
  return members;
}

std::string Choice::chunk(std::string_view content, const char* finish) {
  const std::string reason = finish == nullptr ? "null" : json_string(finish);
  return fmt::format("{{\"index\":{},{}{},\"finish_reason\":{}}}", options_.index, content,
                     details(), reason);
}

std::string Choice::whole(const char* finish) {
  if (!answer_->head().is_chat) return chunk("\"text\":" + json_string(part_.text), finish);
  const bool has_calls = !part_.calls.empty();
  std::string message = "\"role\":\"assistant\",\"content\":";
  message += part_.text.empty() && has_calls ? "null" : json_string(part_.text);
  if (!part_.reasoning.empty()) {
    message += ",\"reasoning_content\":" + json_string(part_.reasoning);
  }
  if (has_calls) message += ",\"tool_calls\":" + calls_json(part_.calls, /*has_index=*/false);
  return chunk(fmt::format("\"message\":{{{},\"refusal\":null}}", message), finish);
}

const char* Choice::finish_name(Finish finish) const {
  const bool is_length = finish == Finish::kLength && !text_.has_stopped() && !finder_.is_over();
  if (is_length) return "length";
  return finder_.has_calls() ? "tool_calls" : "stop";
}

void Choice::on_end(const GenerationResult& result) {
  if (has_token_) times_.decode.observe(seconds_between(first_, Clock::now()));
  times_.whole.observe(seconds_between(came_, Clock::now()));
  std::string choice;
  const bool is_whole = result.finish == Finish::kStop || result.finish == Finish::kLength;
  if (is_whole) {
    take(text_.finish());
    if (options_.splits_reasoning) take_text(reasoning_.finish());
    show(finder_.finish());
    const char* finish = finish_name(result.finish);
    if (answer_->head().streams) {
      answer_->write_chunk(
          chunk(answer_->head().is_chat ? "\"delta\":{}" : "\"text\":\"\"", finish));
    } else {
      choice = whole(finish);
    }
  }
  answer_->end_choice(options_.index, std::move(choice), result, options_.counts_prompt);
  --shared_.num_sequences;  // last: the server may end now
}

}  // namespace atl::serve::api
