#include "atoll/serve/api/reasoning/reasoning_constraint.h"

#include <utility>

#include "atoll/serve/api/reasoning/reasoning.h"

namespace atl::serve::api {

ReasoningConstraint::ReasoningConstraint(const Tokenizer& tokenizer,
                                         std::vector<std::int32_t> end_tokens,
                                         std::unique_ptr<TokenConstraint> form)
    : tokenizer_(tokenizer),
      decoder_(tokenizer),
      end_tokens_(std::move(end_tokens)),
      form_(std::move(form)) {}

void ReasoningConstraint::mask(std::span<std::uint64_t> allowed) {
  if (has_ended_) {
    form_->mask(allowed);
    return;
  }
  constexpr std::size_t kBits = 64;
  for (const std::int32_t token : end_tokens_) {
    const auto at = static_cast<std::size_t>(token);
    if (at / kBits < allowed.size()) allowed[at / kBits] &= ~(std::uint64_t{1} << at % kBits);
  }
}

void ReasoningConstraint::accept(std::int32_t token) {
  if (has_ended_) {
    form_->accept(token);
    return;
  }
  if (token >= tokenizer_.vocab_size()) return;  // a row of the model that is no token
  tail_ += decoder_.push(token);
  has_ended_ = tail_.find(kReasoningEnd) != std::string::npos;
  if (tail_.size() > kReasoningEnd.size()) tail_.erase(0, tail_.size() - kReasoningEnd.size());
}

bool ReasoningConstraint::is_over() const {
  return has_ended_ && form_->is_over();
}

}  // namespace atl::serve::api
