#include "atoll/train/config/lora.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

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

std::vector<std::int64_t> trained_tokens(const std::vector<double>& entries) {
  std::vector<std::int64_t> tokens;
  for (const double entry : entries) {
    const bool is_token = entry >= 0 && entry <= INT32_MAX && entry == std::floor(entry);
    const auto token = static_cast<std::int64_t>(is_token ? entry : -1);
    if (is_token && std::find(tokens.begin(), tokens.end(), token) == tokens.end()) {
      tokens.push_back(token);
      continue;
    }
    throw user_error("lora.trainable_token_indices has {}{}; its entries are tokens, each once",
                     entry, is_token ? " twice" : "");
  }
  return tokens;
}

}  // namespace atl::train
