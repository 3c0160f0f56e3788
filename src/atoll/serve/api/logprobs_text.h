#pragma once

#include <string>
#include <string_view>

#include "atoll/serve/api/answer_text.h"

namespace atl::serve::api {

/// Log-probabilities as JSON that grows token by token, so that no long answer is written at once:
/// the "logprobs" of a choice.
class LogprobsText {
 public:
  /// `tokenizer` must outlive this. `num_top`: the likeliest that are told of each token.
  LogprobsText(const Tokenizer& tokenizer, bool is_chat, int num_top)
      : tokenizer_(tokenizer), is_chat_(is_chat), num_top_(num_top) {}

  void add(const PlacedToken& token);
  bool is_empty() const { return tokens_.empty(); }
  /// The JSON object of what was added since the last call.
  std::string take();

 private:
  void add_to_chat(const PlacedToken& token);
  void add_to_completion(const PlacedToken& token);
  std::string chat_entry(std::int32_t token, double logprob) const;
  std::string_view bytes_of(std::int32_t token) const;
  std::string spelling(std::int32_t token) const;

  const Tokenizer& tokenizer_;
  bool is_chat_;
  int num_top_;
  std::string tokens_;  // of a chat: all
  std::string logprobs_, tops_, offsets_;
};

}  // namespace atl::serve::api
