#include "atoll/data/bytes/document_stream.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::data {

namespace {

constexpr std::string_view kWhite = " \t\r\n\v\f";

}  // namespace

DocumentStream::DocumentStream(TextWindow& window, DocumentMode mode)
    : window_(window), mode_(mode) {}

bool DocumentStream::next() {
  ATOLL_CHECK(known_ == 0 && has_ended_, "{} bytes of a document are left", known_);
  while (window_.fill(1)) {
    has_ended_ = false;
    is_within_line_ = false;
    extend();
    if (known_ > 0) return true;
    // A blank line.
    window_.consume(
        std::min(window_.find('\n', 0).value_or(window_.view().size()) + 1, window_.view().size()));
  }
  has_ended_ = true;
  return false;
}

std::string_view DocumentStream::front(std::size_t bytes) {
  while (known_ < bytes && !has_ended_) extend();
  return window_.view().substr(0, known_);
}

void DocumentStream::consume(std::size_t bytes) {
  ATOLL_CHECK(bytes <= known_, "{} bytes of {}", bytes, known_);
  window_.consume(bytes);
  known_ -= bytes;
}

void DocumentStream::extend() {
  if (!window_.fill(known_ + 1)) {
    has_ended_ = true;
    return;
  }
  if (mode_ == DocumentMode::kFile) {
    known_ = window_.view().size();
    return;
  }
  if (!is_within_line_) {
    // Blank or not: up to the first letter, or the line's end.
    for (std::size_t at = known_;; ++at) {
      if (at >= window_.view().size() && !window_.fill(at + 1)) {
        has_ended_ = true;  // a blank line without an end
        return;
      }
      const char letter = window_.view()[at];
      if (letter == '\n') {
        has_ended_ = true;
        return;
      }
      if (kWhite.find(letter) == std::string_view::npos) break;
      if (at - known_ > kMaxRowBytes) window_.find('\n', at);  // throws of what is compressed
    }
  }
  const std::string_view rest = window_.view().substr(known_);
  const std::size_t end = rest.find('\n');
  is_within_line_ = end == std::string_view::npos;
  known_ += is_within_line_ ? rest.size() : end + 1;
}

}  // namespace atl::data
