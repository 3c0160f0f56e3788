#include "atoll/serve/api/stop_finder.h"

#include <algorithm>
#include <utility>

namespace atl::serve::api {

std::size_t begun_bytes(std::string_view text, std::string_view word) {
  for (std::size_t size = std::min(text.size(), word.size() - 1); size > 0; --size) {
    if (text.ends_with(word.substr(0, size))) return size;
  }
  return 0;
}

std::size_t StopFinder::find_stop() const {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  return first;
}

std::size_t StopFinder::held_bytes() const {
  std::size_t most = 0;
  for (const std::string& stop : stops_) most = std::max(most, begun_bytes(held_, stop));
  return most;
}

std::string StopFinder::push(std::string_view text) {
  if (has_stopped_) return "";
  held_ += text;
  const std::size_t stop = find_stop();
  if (stop != std::string::npos) {
    has_stopped_ = true;
    held_.resize(stop);
    return std::exchange(held_, "");
  }
  const std::size_t sure = held_.size() - held_bytes();
  std::string shown = held_.substr(0, sure);
  held_.erase(0, sure);
  return shown;
}

std::string StopFinder::finish() {
  return std::exchange(held_, "");
}

}  // namespace atl::serve::api
