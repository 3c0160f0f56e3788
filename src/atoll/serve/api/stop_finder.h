#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace atl::serve::api {

/// Looks for texts that end an answer while it comes. What may still become one of them is held
/// back, so that no part of one is ever shown.
class StopFinder {
 public:
  /// None of `stops` is empty.
  explicit StopFinder(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// What of the text so far is sure to be shown and was not returned before. Nothing more once
  /// has_stopped().
  std::string push(std::string_view text);
  /// The rest, at the end of an answer that no stop has ended.
  std::string finish();
  /// Whether one of the texts has come.
  bool has_stopped() const { return has_stopped_; }

 private:
  std::size_t find_stop() const;
  std::size_t held_bytes() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool has_stopped_ = false;
};

/// The length of the longest end of `text` with which `word` begins, but not of all of it.
std::size_t begun_bytes(std::string_view text, std::string_view word);

}  // namespace atl::serve::api
