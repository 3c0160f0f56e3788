#include "atoll/serve/api/answer.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/serve/api/json_text.h"

namespace atl::serve::api {

namespace {

std::string prefix_of(const AnswerHead& head) {
  const char* object = !head.is_chat  ? "text_completion"
                       : head.streams ? "chat.completion.chunk"
                                      : "chat.completion";
  std::string text =
      fmt::format("\"id\":{},\"object\":\"{}\",\"created\":{},\"model\":{}", json_string(head.id),
                  object, head.created_s, json_string(head.model));
  if (!head.fingerprint.empty()) {
    text += ",\"system_fingerprint\":" + json_string(head.fingerprint);
  }
  return text;
}

std::string event_of(std::string_view data) {
  return fmt::format("data: {}\n\n", data);
}

}  // namespace

Answer::Answer(AnswerHead head, std::size_t num_choices, http::Reply reply, Generator& generator)
    : head_(std::move(head)),
      prefix_(prefix_of(head_)),
      reply_(std::move(reply)),
      generator_(generator),
      choices_(num_choices),
      left_(num_choices) {}

void Answer::add_sequence(std::uint64_t number) {
  bool is_late = false;
  {
    const std::lock_guard lock(mutex_);
    sequences_.push_back(number);
    is_late = is_over_;
  }
  if (is_late) generator_.cancel(number);
}

void Answer::start() {
  const std::lock_guard lock(mutex_);
  has_started_ = true;
  if (is_over_) return;
  if (head_.streams) {
    http::Response response = http::Response::of("text/event-stream", "");
    response.add("Cache-Control", "no-store").add("X-Accel-Buffering", "no");
    reply_.begin(std::move(response));
    reply_.write(std::exchange(early_, ""));
  }
  if (left_ == 0) finish();
}

void Answer::refuse(const ApiError& error) {
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    is_over_ = true;
    if (head_.streams && has_started_) {
      end_stream(event_of(error_json(error)));
    } else {
      reply_.send(error_response(error));
    }
  }
  cancel_sequences();
}

void Answer::cancel() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  cancel_sequences();
}

// Without the lock: the generator may be telling something meanwhile, which waits for it.
void Answer::cancel_sequences() {
  std::vector<std::uint64_t> numbers;
  {
    const std::lock_guard lock(mutex_);
    numbers = sequences_;
  }
  for (const std::uint64_t number : numbers) generator_.cancel(number);
}

std::string Answer::object_json(std::string_view choices, std::string_view more) const {
  return fmt::format("{{{},\"choices\":[{}]{}}}", prefix_, choices, more);
}

std::string Answer::usage_json() const {
  return fmt::format(
      "\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},"
      "\"prompt_tokens_details\":{{\"cached_tokens\":{}}}}}",
      sum_.prompt_tokens, sum_.new_tokens, sum_.prompt_tokens + sum_.new_tokens,
      sum_.cached_tokens);
}

void Answer::put(const std::string& event) {
  if (is_over_) return;
  if (!has_started_) {
    early_ += event;
    return;
  }
  is_quiet_ = false;
  is_over_ = !reply_.write(event);
}

void Answer::write_chunk(std::string_view choices, std::string_view more) {
  std::string members(more);
  if (head_.includes_usage) members += ",\"usage\":null";
  const std::lock_guard lock(mutex_);
  put(event_of(object_json(choices, members)));
}

void Answer::ping() {
  const std::lock_guard lock(mutex_);
  if (!head_.streams || !has_started_) return;
  if (std::exchange(is_quiet_, true)) put(": ping\n\n");
  is_quiet_ = true;
}

bool Answer::is_wanted() {
  const std::lock_guard lock(mutex_);
  return !is_over_;
}

void Answer::end_choice(std::size_t index, std::string choice, const GenerationResult& result,
                        bool counts_prompt) {
  const std::lock_guard lock(mutex_);
  choices_[index] = std::move(choice);
  sum_.new_tokens += result.new_tokens;
  if (counts_prompt) {
    sum_.prompt_tokens += result.prompt_tokens;
    sum_.cached_tokens += result.cached_tokens;
  }
  if (result.finish == Finish::kFailed) error_ = result.error;
  if (result.finish == Finish::kCancelled) {
    error_ = "the server is ending";
    error_status_ = 503;
  }
  --left_;
  if (left_ == 0 && has_started_) finish();
}

void Answer::finish() {
  if (std::exchange(is_over_, true)) return;
  if (!head_.streams) {
    if (!error_.empty()) {
      reply_.send(error_response(ApiError(error_status_, error_)));
      return;
    }
    std::string all;
    for (const std::string& choice : choices_) all += (all.empty() ? "" : ",") + choice;
    http::Response response =
        http::Response::of("application/json", object_json(all, "," + usage_json() + head_.more));
    reply_.send(std::move(response.add("Cache-Control", "no-store")));
    return;
  }
  std::string last;
  if (!error_.empty()) {
    last = event_of(error_json(ApiError(error_status_, error_)));
  } else if (head_.includes_usage) {
    last = event_of(object_json("", "," + usage_json()));
  }
  end_stream(last);
}

void Answer::end_stream(const std::string& last) {
  reply_.write(last + event_of("[DONE]"));
  reply_.end();
}

}  // namespace atl::serve::api
