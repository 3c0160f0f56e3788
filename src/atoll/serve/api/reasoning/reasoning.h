#pragma once

// What a model thinks before its answer, told from the answer.

#include <string>
#include <string_view>

namespace atl::serve::api {

/// A part of an answer: what was thought, and what is said behind it.
struct ReasoningPart {
  std::string reasoning;
  std::string text;
};

/// Takes <think>...</think> at the beginning of an answer apart from the rest, while the answer
/// comes. White space around either is dropped where it stands beside a mark.
class ReasoningFinder {
 public:
  /// `is_inside`: the prompt has the opening mark, so that the answer begins behind it.
  explicit ReasoningFinder(bool is_inside) : place_(is_inside ? kInside : kBefore) {}

  ReasoningPart push(std::string_view text);
  /// The rest, at the end of the answer.
  ReasoningPart finish();

 private:
  enum Place { kBefore, kInside, kBehind, kText };

  void take(ReasoningPart& part);
  bool begin();
  bool think(ReasoningPart& part);

  Place place_;
  std::string held_;
  bool has_reasoning_ = false;  // some of it was told
};

/// Whether a prompt ends behind an opening mark that is not closed.
bool ends_in_reasoning(std::string_view prompt);

/// Whether a chat template is one of a model that thinks: it knows the closing mark.
bool knows_reasoning(std::string_view template_source);

/// The mark that ends what a model thinks.
inline constexpr std::string_view kReasoningEnd = "</think>";

}  // namespace atl::serve::api
