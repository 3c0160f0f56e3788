#include "atoll/data/jsonl/python_json.h"

#include <cctype>
#include <charconv>
#include <cstdint>

namespace atl::data {

namespace {

// Two characters that Unicode leaves to private use, round words that no text has by chance.
constexpr std::string_view kReplacement = "\uE0A7atoll: a value that cannot be read\uE0A7";

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '-' || c == '.';
}

class Rewriter {
 public:
  explicit Rewriter(std::string_view line) : line_(line) {}

  std::optional<PlainJson> rewrite() {
    while (at_ < line_.size()) {
      if (line_[at_] == '"') {
        copy_string();
      } else if (is_word(line_[at_])) {
        copy_word();
      } else {
        result_.text += line_[at_++];
      }
    }
    if (result_.first.empty()) return std::nullopt;
    return std::move(result_);
  }

 private:
  void replace(std::string_view spelled, const char* reason) {
    if (!result_.first.empty()) return;
    constexpr std::size_t kShown = 40;
    result_.first = spelled.substr(0, kShown);
    if (spelled.size() > kShown) result_.first += "...";
    result_.reason = reason;
  }

  // The code unit of "\uXXXX" at a place.
  std::optional<std::uint32_t> unit_at(std::size_t at) const {
    constexpr std::size_t kDigits = 4;
    if (line_.substr(at, 2) != "\\u" || at + 2 + kDigits > line_.size()) return std::nullopt;
    std::uint32_t unit = 0;
    const char* begin = line_.data() + at + 2;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, unit, 16);
    if (error != std::errc() || end != begin + kDigits) return std::nullopt;
    return unit;
  }

  void copy(std::size_t count) {
    result_.text += line_.substr(at_, count);
    at_ += count;
  }

  void copy_string() {
    constexpr std::size_t kUnit = 6;  // "\uXXXX"
    copy(1);
    while (at_ < line_.size() && line_[at_] != '"') {
      if (line_[at_] != '\\') {
        copy(1);
        continue;
      }
      const auto is_half = [](std::optional<std::uint32_t> unit, std::uint32_t first) {
        constexpr std::uint32_t kHalves = 0x400;
        return unit && *unit >= first && *unit < first + kHalves;
      };
      constexpr std::uint32_t kHigh = 0xD800;
      constexpr std::uint32_t kLow = 0xDC00;
      const auto unit = unit_at(at_);
      if (is_half(unit, kHigh) && is_half(unit_at(at_ + kUnit), kLow)) {
        copy(2 * kUnit);
      } else if (is_half(unit, kHigh) || is_half(unit, kLow)) {
        replace(line_.substr(at_, kUnit), "it is half of a surrogate pair, which is no character");
        result_.text += kReplacement;
        at_ += kUnit;
      } else {
        copy(2);
      }
    }
    if (at_ < line_.size()) copy(1);
  }

  // A number, or a name such as true or NaN.
  void copy_word() {
    std::size_t end = at_;
    while (end < line_.size() && is_word(line_[end])) ++end;
    const std::string_view word = line_.substr(at_, end - at_);
    if (const char* reason = problem_of(word)) {
      replace(word, reason);
      ((result_.text += '"') += kReplacement) += '"';
      at_ = end;
      return;
    }
    copy(word.size());
  }

  // Null for a word that a strict parser reads, and for one that is no JSON of Python's either.
  static const char* problem_of(std::string_view word) {
    if (word == "NaN" || word == "Infinity" || word == "-Infinity") {
      return "JSON has no such number";
    }
    const std::string_view digits = word.substr(word.front() == '-' ? 1 : 0);
    if (digits.empty() || std::isdigit(static_cast<unsigned char>(digits.front())) == 0) {
      return nullptr;
    }
    const char* end = word.data() + word.size();
    if (digits.find_first_not_of("0123456789") == std::string_view::npos) {
      std::uint64_t positive = 0;
      std::int64_t negative = 0;
      const bool fits = word.front() == '-'
                            ? std::from_chars(word.data(), end, negative).ec == std::errc()
                            : std::from_chars(word.data(), end, positive).ec == std::errc();
      return fits ? nullptr : "the number has more than 64 bits";
    }
    double value = 0;
    const auto parsed = std::from_chars(word.data(), end, value);
    const bool is_too_large = parsed.ec == std::errc::result_out_of_range && parsed.ptr == end;
    return is_too_large ? "no number of 64 bits is as large or as small" : nullptr;
  }

  std::string_view line_;
  std::size_t at_ = 0;
  PlainJson result_;
};

}  // namespace

std::optional<PlainJson> without_python_values(std::string_view line) {
  return Rewriter(line).rewrite();
}

bool has_replacement(std::string_view value) {
  return value.find(kReplacement) != std::string_view::npos;
}

}  // namespace atl::data
