#include "atoll/cli/chat/chat_session.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/json.h"
#include "atoll/base/quantity.h"
#include "atoll/text/stream_decoder.h"

namespace atl::cli {

namespace {

using Clock = std::chrono::steady_clock;

// Hands tokens from the generator's thread to the one that shows them.
class Inbox final : public serve::GenerationListener {
 public:
  bool on_token(const serve::TokenResult& token) override {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(token.token);
    changed_.notify_all();
    return true;
  }
  void on_end(const serve::GenerationResult& result) override {
    const std::lock_guard lock(mutex_);
    result_ = result;
    changed_.notify_all();
  }

  // Tokens that came since; waits for some, but only so long that a wish to end is seen.
  std::vector<std::int32_t> take() {
    constexpr std::chrono::milliseconds kLook{50};
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLook, [this] { return !tokens_.empty() || result_; });
    return std::exchange(tokens_, {});
  }
  // Once it has ended and all tokens are taken.
  std::optional<serve::GenerationResult> result() {
    const std::lock_guard lock(mutex_);
    return tokens_.empty() ? result_ : std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int32_t> tokens_;
  std::optional<serve::GenerationResult> result_;
};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void ChatSession::Settings::validate() const {
  sampling.validate();
  serve::LogitChanges{.min_p = min_p, .repetition_penalty = repetition_penalty}.validate();
  if (max_tokens < 0) throw user_error("max_tokens must be 0 or more, not {}", max_tokens);
}

ChatSession::ChatSession(serve::Generator& generator, Tokenizer tokenizer, ChatTemplate chat,
                         std::vector<std::int32_t> stops, const Settings& settings)
    : generator_(generator),
      tokenizer_(std::move(tokenizer)),
      chat_(std::move(chat)),
      stops_(std::move(stops)),
      settings_(settings) {}

void ChatSession::set_system(const std::string& text) {
  if (!messages_.empty() && messages_.front().role == "system") messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {"system", text, ""});
}

void ChatSession::say(const std::string& text) {
  messages_.push_back({"user", text, ""});
}

bool ChatSession::take_back_answer() {
  if (messages_.empty() || messages_.back().role != "assistant") return false;
  messages_.pop_back();
  return true;
}

bool ChatSession::undo() {
  take_back_answer();
  if (messages_.empty() || messages_.back().role != "user") return false;
  messages_.pop_back();
  return true;
}

void ChatSession::clear() {
  std::erase_if(messages_, [](const ChatMessage& message) { return message.role != "system"; });
}

serve::GenerationRequest ChatSession::request() const {
  serve::GenerationRequest request;
  request.prompt = tokenizer_.encode(chat_.render(messages_, {.add_generation_prompt = true}));
  const std::int64_t room = generator_.max_tokens() - std::ssize(request.prompt);
  if (room < 1) {
    throw user_error(
        "the conversation has {} and the model {}; take messages back with /undo, or begin anew "
        "with /clear",
        counted(std::ssize(request.prompt), "token"), counted(generator_.max_tokens(), "position"));
  }
  request.max_new_tokens = settings_.max_tokens == 0 ? room : std::min(settings_.max_tokens, room);
  request.sampling = settings_.sampling;
  request.sequence = answers_;
  request.changes.min_p = settings_.min_p;
  request.changes.repetition_penalty = settings_.repetition_penalty;
  request.stop_tokens = stops_;
  return request;
}

ChatSession::Answer ChatSession::answer(const std::function<void(std::string_view text)>& show,
                                        const std::function<bool()>& wants_end) {
  const auto inbox = std::make_shared<Inbox>();
  const auto start = Clock::now();
  const std::optional<std::uint64_t> number = generator_.submit(request(), inbox);
  ATOLL_CHECK(number.has_value(), "nobody else asks this generator");
  ++answers_;
  StreamDecoder decoder(tokenizer_, {.skip_special = true});
  std::string text;
  const auto add = [&](const std::string& more) {
    text += more;
    show(more);
  };
  Answer answer;
  Clock::time_point first;
  std::optional<serve::GenerationResult> result;
  while (!(result = inbox->result())) {
    for (const std::int32_t token : inbox->take()) {
      if (first == Clock::time_point()) first = Clock::now();
      add(decoder.push(token));
    }
    if (wants_end()) generator_.cancel(*number);
  }
  add(decoder.finish());
  answer.result = *result;
  const auto end = Clock::now();
  if (first == Clock::time_point()) first = end;
  answer.seconds_to_first = seconds_between(start, first);
  answer.seconds = seconds_between(first, end);
  if (result->finish == serve::Finish::kFailed) {
    throw make_error(ErrorKind::kNumeric, "{}", result->error);
  }
  messages_.push_back({"assistant", text, ""});
  return answer;
}

void ChatSession::save(const std::filesystem::path& path) const {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages_) {
    messages.push_back({{"role", message.role}, {"content", message.content.value_or("")}});
  }
  const nlohmann::ordered_json whole = {{"messages", messages}};
  write_file(path, whole.dump() + "\n");
}

void ChatSession::load(const std::filesystem::path& path) {
  const nlohmann::json json =
      parse_json(read_file(path), path.string(), {.refusal = ErrorKind::kUser});
  if (!json.is_object() || !json.contains("messages")) {
    throw user_error("{} is no conversation: it has to be {{\"messages\": [...]}}, as /save writes",
                     path.string());
  }
  messages_ = parse_messages(json["messages"].dump(), path.string());
}

}  // namespace atl::cli
