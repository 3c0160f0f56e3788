#pragma once

// The answer to one request: all its choices, as a whole or as a stream of events.

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/http/reply.h"
#include "atoll/serve/api/api_error.h"
#include "atoll/serve/api/open_answer.h"
#include "atoll/serve/batch/generator.h"

namespace atl::serve::api {

/// What is the same in all parts of an answer.
struct AnswerHead {
  bool is_chat = false;
  bool streams = false;
  bool includes_usage = false;
  bool returns_tokens = false;
  int top_logprobs = -1;
  std::string id;     ///< "chatcmpl-..."
  std::string model;  ///< as the client called it
  std::int64_t created_s = 0;
  std::string fingerprint;
  std::string more;  ///< members of the whole that come last: ",\"prompt_token_ids\":[...]"
};

/// Collects what becomes of the sequences of one request. Any thread may call it; sequences tell
/// from the generator's thread.
class Answer final : public OpenAnswer {
 public:
  /// `generator` must outlive the last sequence's end. `num_choices`: of all prompts.
  Answer(AnswerHead head, std::size_t num_choices, http::Reply reply, Generator& generator);

  const AnswerHead& head() const { return head_; }

  /// Keeps the number of a sequence, to cancel it.
  void add_sequence(std::uint64_t number);
  /// All sequences are with the generator: what they have said meanwhile goes out.
  void start();
  void refuse(const ApiError& error) override;
  /// Nobody wants the answer any more.
  void cancel();

  /// Sends one event of a stream with these choices. `more`: members that come last.
  void write_chunk(std::string_view choices, std::string_view more = "");
  void ping() override;
  /// False: the client has gone, or the answer has ended otherwise.
  bool is_wanted();
  /// The end of a sequence. `choice`: its JSON, where the answer is told as a whole.
  /// `counts_prompt`: of the choices of one prompt only one does.
  void end_choice(std::size_t index, std::string choice, const GenerationResult& result,
                  bool counts_prompt);

 private:
  std::string object_json(std::string_view choices, std::string_view more) const;
  std::string usage_json() const;
  void put(const std::string& event);
  void finish();
  void end_stream(const std::string& last);
  void cancel_sequences();

  const AnswerHead head_;
  const std::string prefix_;  // members that come first in every part
  const http::Reply reply_;
  Generator& generator_;
  std::mutex mutex_;
  bool has_started_ = false;
  bool is_over_ = false;  // answered, refused or gone
  bool is_quiet_ = true;  // since the last ping
  std::string early_;     // events before start()
  std::vector<std::uint64_t> sequences_;
  std::vector<std::string> choices_;
  std::size_t left_;
  GenerationResult sum_;
  std::string error_;
  int error_status_ = 500;
};

}  // namespace atl::serve::api
