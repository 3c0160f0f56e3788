#include "atoll/serve/api/jobs.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/hash.h"
#include "atoll/base/json.h"
#include "atoll/serve/api/answer_text.h"
#include "atoll/serve/api/generation.h"

namespace atl::serve::api {

namespace {

// One line of requests.
struct Job {
  std::int64_t line = 0;  // from 1 on
  std::string id;         // "custom_id", as JSON; empty: none
  std::string mark;       // what tells this request and model from others
};

// A line of answers.
struct AnswerLine {
  std::string text;
  bool is_error = false;
};

// What waits to be written, by line.
class Finished {
 public:
  void put(std::int64_t line, AnswerLine answer) {
    const std::lock_guard lock(mutex_);
    answers_.emplace(line, std::move(answer));
    changed_.notify_all();
  }
  // That of a line; waits for it, but only so long that a wish to end is seen.
  std::optional<AnswerLine> take(std::int64_t line) {
    constexpr std::chrono::milliseconds kLook{50};
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLook, [&] { return answers_.contains(line); });
    const auto found = answers_.find(line);
    if (found == answers_.end()) return std::nullopt;
    AnswerLine answer = std::move(found->second);
    answers_.erase(found);
    return answer;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, AnswerLine> answers_;
};

std::string head_of(const Job& job) {
  std::string text = fmt::format(R"({{"line":{})", job.line);
  if (!job.id.empty()) text += R"(,"custom_id":)" + job.id;
  return text;
}

std::string end_of(const Job& job) {
  return fmt::format(R"(,"request":"{}"}})", job.mark);
}

AnswerLine refusal(const Job& job, const ApiError& error) {
  const std::string whole = error_json(error);  // {"error":{...}}
  return {head_of(job) + "," + whole.substr(1, whole.size() - 2) + end_of(job), true};
}

// The answer to one request, as it comes.
class JobListener final : public GenerationListener {
 public:
  JobListener(Job job, AnswerText text, std::shared_ptr<Finished> finished)
      : job_(std::move(job)), text_(std::move(text)), finished_(std::move(finished)) {}

  bool on_token(const TokenResult& token) override {
    shown_ += text_.push(token).text;
    return !text_.has_stopped();
  }
  void on_end(const GenerationResult& result) override {
    // A request that is cancelled is asked again by the next call.
    if (result.finish == Finish::kCancelled) return;
    if (result.finish == Finish::kFailed) {
      return finished_->put(job_.line, refusal(job_, ApiError(500, result.error)));
    }
    if (!text_.has_stopped()) shown_ += text_.finish().text;
    finished_->put(
        job_.line,
        {head_of(job_) +
         fmt::format(R"(,"text":{},"finish_reason":"{}","usage":{{"prompt_tokens":{},)"
                     R"("completion_tokens":{},"total_tokens":{}}})",
                     json_string(shown_), result.finish == Finish::kLength ? "length" : "stop",
                     result.prompt_tokens, result.new_tokens,
                     result.prompt_tokens + result.new_tokens) +
         end_of(job_)});
  }

 private:
  Job job_;
  AnswerText text_;
  std::shared_ptr<Finished> finished_;  // shared: it may end after whoever takes the answers
  std::string shown_;
};

// A request that the generator can take.
struct Ready {
  GenerationRequest request;
  std::vector<std::string> stops;
};

// What would be computed and never told.
void refuse_untold(const Parameters& request) {
  if (request.streams) throw field_error("stream", "an answer in a file is no stream");
  if (request.top_logprobs >= 0) throw field_error("logprobs", "logprobs are not done here");
  if (request.returns_tokens) throw field_error("return_token_ids", "ids are not told here");
}

Ready ready(const Json& body, const ServedModel& model, std::uint64_t seed) {
  if (body.contains("messages")) {
    const ChatRequest request = parse_chat(body);
    refuse_untold(request);
    if (!request.tool_names.empty()) throw field_error("tools", "tools are not done here");
    return {only_sequence(request, model, seed), request.stop};
  }
  const CompletionRequest request = parse_completion(body);
  refuse_untold(request);
  return {only_sequence(request, model, seed), request.stop};
}

class Runner {
 public:
  Runner(const Jobs& jobs, const ServedModel& model)
      : jobs_(jobs), model_(model), requests_(jobs.requests) {
    if (!requests_) throw user_error("{}: cannot be read", jobs.requests.string());
  }

  JobsDone run(const std::function<bool()>& wants_end) {
    read_answers();
    std::ofstream out(jobs_.answers, std::ios::app);
    if (!out) throw user_error("{}: cannot be written", jobs_.answers.string());
    std::int64_t written = done_.there;
    for (;;) {
      while (!is_read_ && next_ - written <= jobs_.at_once) submit_next();
      if (is_read_ && written + 1 == next_) break;
      if (wants_end()) {
        cancel();
        return done_;
      }
      const std::optional<AnswerLine> answer = finished_->take(written + 1);
      if (!answer) continue;
      out << answer->text << "\n" << std::flush;
      if (!out) throw user_error("{}: cannot be written", jobs_.answers.string());
      ++written;
      ++(answer->is_error ? done_.failed : done_.answered);
    }
    done_.is_whole = true;
    return done_;
  }

 private:
  // The next line of requests; nothing at the end.
  std::optional<std::string> read_line() {
    std::string line;
    if (!std::getline(requests_, line)) {
      is_read_ = true;
      return std::nullopt;
    }
    return line;
  }

  std::string mark_of(const std::string& line) const {
    const std::string all =
        fmt::format("{}\n{}\n{}\n{}", jobs_.identity, model_.fingerprint, jobs_.seed, line);
    return to_hex(hash_bytes(all.data(), all.size())).substr(0, 16);
  }

  // Goes to the end of what an earlier call has answered; half a line is cut off.
  void read_answers() {
    std::error_code none;
    if (!std::filesystem::exists(jobs_.answers, none)) return;
    const std::string text = read_file(jobs_.answers);
    std::size_t at = 0;
    for (std::size_t end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      const std::optional<std::string> request = read_line();
      const std::string mark = request ? end_of({.mark = mark_of(*request)}) : "";
      if (!request || !std::string_view(text).substr(at, end - at).ends_with(mark)) {
        throw user_error(
            "{}, line {}: it answers another request, or is of another model or --seed; give "
            "another file, or remove this one",
            jobs_.answers.string(), next_);
      }
      ++next_;
      ++done_.there;
    }
    if (at < text.size()) std::filesystem::resize_file(jobs_.answers, at);
  }

  void submit_next() {
    const std::optional<std::string> line = read_line();
    if (!line) return;
    Job job = {.line = next_++, .id = {}, .mark = mark_of(*line)};
    try {
      Json body = parse_body(*line);
      if (const auto id = body.find("custom_id"); id != body.end()) {
        job.id = to_text(*id);
        body.erase(id);
      }
      if (body.contains("body")) body = Json(body["body"]);
      Ready made = ready(body, model_, jobs_.seed + static_cast<std::uint64_t>(job.line));
      AnswerText text(model_.tokenizer, std::move(made.stops));
      text.follow(made.request.prompt);
      const auto listener = std::make_shared<JobListener>(job, std::move(text), finished_);
      const auto number = model_.generator->submit(std::move(made.request), listener);
      ATOLL_CHECK(number.has_value(), "a queue for {} requests is full", jobs_.at_once);
      numbers_.push_back(*number);
    } catch (const ApiError& error) {
      fail(job, error);
    } catch (const Error& error) {
      fail(job, ApiError(400, error.what()));
    }
  }

  void fail(const Job& job, const ApiError& error) {
    finished_->put(job.line, refusal(job, error));
  }

  void cancel() {
    for (const std::uint64_t number : numbers_) model_.generator->cancel(number);
  }

  const Jobs& jobs_;
  const ServedModel& model_;
  std::ifstream requests_;
  bool is_read_ = false;
  std::int64_t next_ = 1;                                              // line of requests
  std::shared_ptr<Finished> finished_ = std::make_shared<Finished>();  // see JobListener
  std::vector<std::uint64_t> numbers_;
  JobsDone done_;
};

}  // namespace

JobsDone run_jobs(const Jobs& jobs, const ServedModel& model,
                  const std::function<bool()>& wants_end) {
  return Runner(jobs, model).run(wants_end);
}

}  // namespace atl::serve::api
