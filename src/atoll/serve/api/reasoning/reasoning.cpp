#include "atoll/serve/api/reasoning/reasoning.h"

#include <utility>

#include "atoll/serve/api/stop_finder.h"

namespace atl::serve::api {

namespace {

constexpr std::string_view kReasoningBegin = "<think>";
constexpr const char* kWhiteSpace = " \t\r\n";

}  // namespace

ReasoningPart ReasoningFinder::push(std::string_view text) {
  held_ += text;
  ReasoningPart part;
  take(part);
  return part;
}

void ReasoningFinder::take(ReasoningPart& part) {
  if (place_ == kBefore && !begin()) return;
  if (place_ == kInside && !think(part)) return;
  if (place_ == kBehind) {
    const std::size_t first = held_.find_first_not_of(kWhiteSpace);
    held_.erase(0, first);
    if (first == held_.npos) return;
    place_ = kText;
  }
  part.text += std::exchange(held_, "");
}

// False: it is not known yet whether the answer begins with the mark.
bool ReasoningFinder::begin() {
  const std::size_t first = held_.find_first_not_of(kWhiteSpace);
  if (first == held_.npos) return false;
  const std::string_view rest = std::string_view(held_).substr(first);
  if (rest.starts_with(kReasoningBegin)) {
    held_.erase(0, first + kReasoningBegin.size());
    place_ = kInside;
  } else if (kReasoningBegin.starts_with(rest)) {
    return false;
  } else {
    place_ = kText;
  }
  return true;
}

// False: the closing mark has not come. White space is kept until something follows it.
bool ReasoningFinder::think(ReasoningPart& part) {
  if (!has_reasoning_) {
    const std::size_t first = held_.find_first_not_of(kWhiteSpace);
    held_.erase(0, first);
  }
  const std::size_t end = held_.find(kReasoningEnd);
  const bool is_closed = end != held_.npos;
  const std::size_t sure = is_closed ? end : held_.size() - begun_bytes(held_, kReasoningEnd);
  const std::size_t last = std::string_view(held_).substr(0, sure).find_last_not_of(kWhiteSpace);
  const std::size_t shown = last == held_.npos ? 0 : last + 1;
  part.reasoning.append(held_, 0, shown);
  has_reasoning_ = has_reasoning_ || shown > 0;
  held_.erase(0, is_closed ? end + kReasoningEnd.size() : shown);
  if (is_closed) place_ = kBehind;
  return is_closed;
}

ReasoningPart ReasoningFinder::finish() {
  ReasoningPart part;
  take(part);
  const std::string rest = std::exchange(held_, "");
  if (place_ == kInside) {
    const std::size_t last = rest.find_last_not_of(kWhiteSpace);
    if (last != rest.npos) part.reasoning += rest.substr(0, last + 1);
  } else if (place_ == kBefore) {
    part.text += rest;
  }
  return part;
}

bool ends_in_reasoning(std::string_view prompt) {
  const std::size_t last = prompt.find_last_not_of(kWhiteSpace);
  return last != prompt.npos && prompt.substr(0, last + 1).ends_with(kReasoningBegin);
}

bool knows_reasoning(std::string_view template_source) {
  return template_source.find(kReasoningEnd) != template_source.npos;
}

}  // namespace atl::serve::api
