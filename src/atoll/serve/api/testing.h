#pragma once

// For tests: a generator that plays given tokens, and a client that may hang up.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/http/testing.h"
#include "atoll/serve/batch/generator.h"

namespace atl::serve::api {

/// The log-probability that ScriptedGenerator tells of a token.
inline double scripted_logprob(std::int32_t token) {
  return -0.125 * (token % 16);
}

/// Plays tokens on a thread of its own, one a step for each sequence that runs. Of a prompt that
/// begins like an earlier one of the same cache key, the equal tokens count as cached.
class ScriptedGenerator : public Generator {
 public:
  /// The tokens of an answer.
  using Script = std::function<std::vector<std::int32_t>(const GenerationRequest&)>;

  explicit ScriptedGenerator(Script script, std::int64_t slots = 4, std::size_t max_queue = 64)
      : script_(std::move(script)), slots_(slots), max_queue_(max_queue) {
    thread_ = std::thread([this] { run(); });
  }
  ~ScriptedGenerator() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  std::optional<std::uint64_t> submit(GenerationRequest request,
                                      std::shared_ptr<GenerationListener> listener) override {
    const auto tokens = std::ssize(request.prompt) + request.max_new_tokens;
    if (tokens > max_tokens()) throw user_error("the scripted generator has no room for that");
    const std::lock_guard lock(mutex_);
    if (stats_.waiting >= static_cast<std::int64_t>(max_queue_)) {
      ++stats_.rejected;
      return std::nullopt;
    }
    const std::uint64_t number = next_++;
    Sequence sequence{.number = number, .listener = std::move(listener)};
    sequence.script = script_(request);
    sequence.request = std::move(request);
    sequences_.push_back(std::move(sequence));
    ++stats_.waiting;
    ++num_submitted_;
    changed_.notify_all();
    return number;
  }
  void cancel(std::uint64_t number) override {
    const std::lock_guard lock(mutex_);
    cancelled_.insert(number);
    changed_.notify_all();
  }
  GeneratorStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  std::int64_t max_tokens() const override { return 1000; }
  std::int64_t vocab_size() const override { return 400; }

  /// No sequence gets more tokens than that until the next call; 0: not even its prompt is read.
  void play_up_to(std::int64_t tokens) {
    const std::lock_guard lock(mutex_);
    limit_ = tokens;
    changed_.notify_all();
  }
  void play_all() { play_up_to(std::numeric_limits<std::int64_t>::max()); }
  /// Fails the sequence that runs first.
  void fail(const std::string& error) {
    const std::lock_guard lock(mutex_);
    error_ = error;
    changed_.notify_all();
  }
  /// Waits until the figures are so; a hang is ended by ctest.
  void wait_until(const std::function<bool(const GeneratorStats&)>& is_so) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_so(stats_); });
  }
  std::int64_t num_submitted() const {
    const std::lock_guard lock(mutex_);
    return num_submitted_;
  }
  /// The last requests that ended, oldest first; constraints are left out.
  std::vector<GenerationRequest> take_requests() {
    const std::lock_guard lock(mutex_);
    return std::exchange(seen_, {});
  }

 private:
  struct Sequence {
    std::uint64_t number = 0;
    GenerationRequest request;
    std::shared_ptr<GenerationListener> listener;
    std::vector<std::int32_t> script;
    std::size_t played = 0;
    bool runs = false;
    bool is_cancelled = false;
    GenerationResult result;
  };

  static TokenResult result_of(std::int32_t token, int top) {
    TokenResult result{.token = token, .logprob = top < 0 ? 0 : scripted_logprob(token)};
    for (int i = 0; i < top; ++i) result.top.emplace_back(token + i, scripted_logprob(token) - i);
    return result;
  }

  // What to do next, chosen under the lock and done without it.
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const std::size_t at = next_to_do();
      if (at == sequences_.size()) {
        if (ends_) return;
        changed_.wait(lock);
        continue;
      }
      Sequence sequence = std::move(sequences_[at]);
      sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(at));
      begin(sequence);
      const std::string error = std::exchange(error_, "");
      lock.unlock();
      const bool goes_on = error.empty() && step(sequence);
      lock.lock();
      if (goes_on) {
        sequences_.push_back(std::move(sequence));
      } else {
        end(std::move(sequence), error, lock);
      }
      changed_.notify_all();
    }
  }

  std::size_t next_to_do() const {
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      const Sequence& one = sequences_[i];
      if (ends_ || cancelled_.contains(one.number)) return i;
      const bool may_run = one.runs || stats_.running < slots_;
      const bool may_play = static_cast<std::int64_t>(one.played) < limit_;
      if (may_run && may_play) return i;
    }
    return sequences_.size();
  }

  void begin(Sequence& sequence) {
    sequence.is_cancelled = ends_ || cancelled_.contains(sequence.number);
    if (sequence.runs || sequence.is_cancelled) return;
    sequence.runs = true;
    --stats_.waiting;
    ++stats_.running;
    const auto& prompt = sequence.request.prompt;
    auto& before = prompts_[sequence.request.cache_key];
    const auto same = std::mismatch(prompt.begin(), prompt.end(), before.begin(), before.end());
    sequence.result.prompt_tokens = std::ssize(prompt);
    sequence.result.cached_tokens = same.first - prompt.begin();
    stats_.prompt_tokens += sequence.result.prompt_tokens;
    stats_.cached_tokens += sequence.result.cached_tokens;
    before = prompt;
  }

  // False: the sequence is over.
  static bool step(Sequence& sequence) {
    const GenerationRequest& request = sequence.request;
    sequence.result.finish = Finish::kCancelled;
    if (sequence.is_cancelled) return false;
    if (sequence.played == 0) {
      sequence.listener->on_begin();
      if (request.prompt_logprobs) {
        std::vector<TokenResult> prompt;
        for (std::size_t i = 1; i < request.prompt.size(); ++i) {
          prompt.push_back(result_of(request.prompt[i], request.top_logprobs));
        }
        sequence.listener->on_prompt(prompt);
      }
    }
    sequence.result.finish = Finish::kLength;
    if (sequence.result.new_tokens == request.max_new_tokens) return false;
    sequence.result.finish = Finish::kStop;
    if (sequence.played == sequence.script.size()) return false;
    const std::int32_t token = sequence.script[sequence.played++];
    const auto& stops = request.stop_tokens;
    if (std::binary_search(stops.begin(), stops.end(), token)) return false;
    ++sequence.result.new_tokens;
    return sequence.listener->on_token(result_of(token, request.top_logprobs));
  }

  // Counts, then tells: who has the answer finds the counts right.
  void end(Sequence sequence, const std::string& error, std::unique_lock<std::mutex>& lock) {
    GenerationResult& result = sequence.result;
    if (!error.empty()) {
      result.finish = Finish::kFailed;
      result.error = error;
    }
    --(sequence.runs ? stats_.running : stats_.waiting);
    stats_.new_tokens += result.new_tokens;
    ++(result.finish == Finish::kCancelled ? stats_.cancelled
       : result.finish == Finish::kFailed  ? stats_.failed
                                           : stats_.finished);
    sequence.request.constraint.reset();
    seen_.push_back(std::move(sequence.request));
    lock.unlock();
    sequence.listener->on_end(result);
    sequence.listener.reset();
    lock.lock();
  }

  const Script script_;
  const std::int64_t slots_;
  const std::size_t max_queue_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Sequence> sequences_;
  std::vector<GenerationRequest> seen_;
  std::map<std::string, std::vector<std::int32_t>> prompts_;  // by cache key
  GeneratorStats stats_;
  std::string error_;
  std::set<std::uint64_t> cancelled_;
  std::uint64_t next_ = 1;
  std::int64_t limit_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t num_submitted_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

/// A connection that reads as it likes and may hang up.
class HttpClient {
 public:
  explicit HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void post(const std::string& path, const std::string& body) const {
    const std::string text = "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                             std::to_string(body.size()) + "\r\n\r\n" + body;
    EXPECT_EQ(::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  /// All that has come, once `part` is in it, or the connection is over.
  const std::string& read_until(const std::string& part) {
    char buffer[4096];
    while (text_.find(part) == text_.npos) {
      const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (count <= 0) break;
      text_.append(buffer, static_cast<std::size_t>(count));
    }
    return text_;
  }
  void hang_up() { socket_ = Fd(); }

 private:
  Fd socket_;
  std::string text_;
};

}  // namespace atl::serve::api
