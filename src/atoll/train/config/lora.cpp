#include "atoll/train/config/lora.h"

#include <charconv>
#include <cmath>

#include "atoll/base/error.h"

namespace atl::train {

namespace {

// The two parts of "PATTERN=NUMBER". A pattern may have a '=' itself, a number has none.
template <typename Number, typename IsGood>
std::vector<std::pair<std::string, Number>> split(const std::vector<std::string>& entries,
                                                  const char* setting, const char* what,
                                                  IsGood&& is_good) {
  std::vector<std::pair<std::string, Number>> pairs;
  for (const std::string& entry : entries) {
    const std::size_t at = entry.rfind('=');
    Number number{};
    const char* end = entry.data() + entry.size();
    const char* begin = at == std::string::npos ? end : entry.data() + at + 1;
    const auto [stop, error] = std::from_chars(begin, end, number);
    if (at == 0 || begin == end || error != std::errc() || stop != end || !is_good(number)) {
      throw user_error("{} has \"{}\", and an entry is a pattern, '=' and {}: \"v_proj=4\"",
                       setting, entry, what);
    }
    pairs.emplace_back(entry.substr(0, at), number);
  }
  return pairs;
}

}  // namespace

std::vector<std::pair<std::string, std::int64_t>> rank_patterns(
    const std::vector<std::string>& entries) {
  return split<std::int64_t>(entries, "lora.rank_pattern", "a rank from 1 to 4096",
                             [](std::int64_t rank) { return rank >= 1 && rank <= 4096; });
}

std::vector<std::pair<std::string, double>> alpha_patterns(
    const std::vector<std::string>& entries) {
  return split<double>(entries, "lora.alpha_pattern", "a number above 0",
                       [](double alpha) { return alpha > 0 && std::isfinite(alpha); });
}

}  // namespace atl::train
