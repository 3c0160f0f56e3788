#pragma once

// One sequence of a request, from tokens to the JSON of its choice.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "atoll/serve/api/answer.h"
#include "atoll/serve/api/answer_text.h"
#include "atoll/serve/api/logprobs_text.h"
#include "atoll/serve/api/reasoning/reasoning.h"
#include "atoll/serve/api/serving.h"
#include "atoll/serve/api/tool_calls.h"

namespace atl::serve::api {

/// What a choice shows, beside its answer's head.
struct ChoiceOptions {
  std::size_t index = 0;
  std::vector<std::string> stops;
  std::vector<std::string> tool_names;
  bool has_one_call = false;
  bool splits_reasoning = false;     ///< what was thought is told apart from the answer
  bool begins_in_reasoning = false;  ///< the prompt ends behind <think>
  bool echoes = false;
  bool counts_prompt = false;  ///< in the answer's usage
  std::vector<std::int32_t> prompt;
};

/// Listens to one sequence and tells its answer.
class Choice : public GenerationListener {
 public:
  using Clock = std::chrono::steady_clock;

  /// `shared` must outlive the sequence. The request came at `came`.
  Choice(ChoiceOptions options, std::shared_ptr<Answer> answer, Serving& shared,
         Clock::time_point came);

  /// Says what comes before the first token: the role, a prompt that is echoed. Once, before the
  /// sequence is with the generator.
  void open();

  void on_begin() override;
  void on_prompt(std::span<const TokenResult> tokens) override;
  bool on_token(const TokenResult& token) override;
  void on_end(const GenerationResult& result) override;

 private:
  void take(const Piece& piece);
  void take_text(const ReasoningPart& part);
  void show(AnswerPart part);
  void observe_token();
  std::string chunk(std::string_view content, const char* finish);
  std::string delta(const AnswerPart& part);
  std::string calls_json(const std::vector<ToolCall>& calls, bool has_index);
  std::string details();
  std::string whole(const char* finish);
  const char* finish_name(Finish finish) const;

  ChoiceOptions options_;
  std::shared_ptr<Answer> answer_;  // shared: by all choices, and by what cancels them
  Serving& shared_;
  RequestTimes& times_;
  AnswerText text_;
  ReasoningFinder reasoning_;
  ToolCallFinder finder_;
  LogprobsText logprobs_;
  std::string ids_;  // of tokens that are not told yet
  AnswerPart part_;  // of an answer that is told as a whole
  std::size_t num_calls_ = 0;
  Clock::time_point came_, began_, first_, last_;
  bool has_begun_ = false, has_token_ = false;
  bool has_told_prompt_ = false;
};

}  // namespace atl::serve::api
