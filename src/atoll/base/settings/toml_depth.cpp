#include "atoll/base/settings/toml_depth.h"

#include <algorithm>

#include "atoll/base/error.h"

namespace atl {

namespace {

constexpr int kMaxParts = 16;
constexpr int kMaxBrackets = 16;

// Walks a text by TOML's words, as far as it is TOML: strings and comments hide what is in them.
class Walk {
 public:
  Walk(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  void run() {
    while (at_ < text_.size()) step();
  }

 private:
  bool starts_with(std::string_view word) const { return text_.substr(at_).starts_with(word); }

  void step() {
    const char c = text_[at_];
    if (c == '#') {
      at_ = std::min(text_.find_first_of("\n\v\f\r", at_), text_.size());
    } else if (starts_with("\"\"\"") || starts_with("'''")) {
      skip_long_string(c);
    } else if (c == '"' || c == '\'') {
      skip_string(c);
    } else if (c == '.') {
      if (++dots_ >= kMaxParts) {
        refuse(fmt::format("a key of more than {} parts; a setting has two, as train.steps",
                           kMaxParts));
      }
      ++at_;
    } else {
      if (c == '[' || c == '{') open();
      if (c == ']' || c == '}') brackets_ = std::max(0, brackets_ - 1);
      if (std::string_view("[]{}=,\n\r").find(c) != std::string_view::npos) dots_ = 0;
      ++at_;
    }
  }

  void open() {
    if (++brackets_ > kMaxBrackets) {
      refuse(fmt::format("a value within more than {} brackets; a setting is at most a list",
                         kMaxBrackets));
    }
  }

  // On one line, as keys can be.
  void skip_string(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == quote) {
        ++at_;
        return;
      }
      if (text_[at_] == '\\' && quote == '"') ++at_;
    }
  }

  void skip_long_string(char quote) {
    const std::string close(3, quote);
    for (at_ += 3; at_ < text_.size() && !starts_with(close); ++at_) {
      if (text_[at_] == '\\' && quote == '"') ++at_;
    }
    // Up to two quotes more are the string's last characters.
    for (int i = 0; i < 5 && at_ < text_.size() && text_[at_] == quote; ++i) ++at_;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    const std::string_view before = text_.substr(0, at_);
    throw user_error("{}:{}: {}", origin_, 1 + std::count(before.begin(), before.end(), '\n'),
                     what);
  }

  std::string_view text_;
  const std::string& origin_;
  std::size_t at_ = 0;
  int dots_ = 0;  // since the last word that is between keys
  int brackets_ = 0;
};

}  // namespace

void check_toml_depth(std::string_view text, const std::string& origin) {
  Walk(text, origin).run();
}

}  // namespace atl
