#pragma once

#include <memory>
#include <vector>

#include "atoll/serve/batch/request.h"
#include "atoll/text/stream_decoder.h"
#include "atoll/text/tokenizer.h"

namespace atl::serve::api {

/// Holds what follows </think> to a form. Before, the model may think what it likes, but it may not
/// end.
class ReasoningConstraint final : public TokenConstraint {
 public:
  /// The text may end by one of `end_tokens`, as far as `form` lets it.
  ReasoningConstraint(const Tokenizer& tokenizer, std::vector<std::int32_t> end_tokens,
                      std::unique_ptr<TokenConstraint> form);

  void mask(std::span<std::uint64_t> allowed) override;
  void accept(std::int32_t token) override;
  bool is_over() const override;

 private:
  Tokenizer tokenizer_;
  StreamDecoder decoder_;
  std::vector<std::int32_t> end_tokens_;
  std::unique_ptr<TokenConstraint> form_;
  std::string tail_;  // of the text, as long as the mark at most
  bool has_ended_ = false;
};

}  // namespace atl::serve::api
