#include "atoll/text/tokenizer_json/tokenizer_json_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/text/engine.h"
#include "atoll/text/tokenizer.h"
#include "atoll/text/utf8.h"

namespace atl {

namespace text {

namespace {

// Walks valid JSON without building it: a vocabulary is long, and all of it stays as it is.
class Walk {
 public:
  explicit Walk(std::string_view json) : json_(json) {}

  // Where the value of a key of the outermost object begins; nothing: there is no such key.
  std::optional<std::size_t> value_of(std::string_view key) {
    for (int depth = 0; at_ < json_.size(); ++at_) {
      const char c = json_[at_];
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      if (c != '"') continue;
      const std::size_t begin = at_ + 1;
      skip_string();
      if (depth != 1 || json_.substr(begin, at_ - begin) != key) continue;
      const std::size_t colon = skip_space(at_ + 1);
      if (colon < json_.size() && json_[colon] == ':') return skip_space(colon + 1);
    }
    return std::nullopt;
  }
  // The bracket that closes the list which begins at `begin`.
  std::size_t end_of_list(std::size_t begin) {
    int depth = 0;
    for (at_ = begin; at_ < json_.size(); ++at_) {
      const char c = json_[at_];
      if (c == '"') skip_string();
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) break;
    }
    return at_;
  }
  std::size_t skip_space(std::size_t at) const {
    return std::min(json_.find_first_not_of(" \t\r\n", at), json_.size());
  }

 private:
  // From the quote that opens a text to the one that closes it.
  void skip_string() {
    for (++at_; at_ < json_.size() && json_[at_] != '"'; ++at_) at_ += json_[at_] == '\\' ? 1 : 0;
  }

  std::string_view json_;
  std::size_t at_ = 0;
};

std::string json_of(const AddedToken& token) {
  return fmt::format(R"({{"id": {}, "content": {}, "single_word": {}, "lstrip": {}, "rstrip": {}, )"
                     R"("normalized": {}, "special": {}}})",
                     token.id, nlohmann::json(token.content).dump(), token.single_word,
                     token.lstrip, token.rstrip, token.normalized, token.special);
}

}  // namespace

std::string with_added_tokens(std::string_view json, std::span<const AddedToken> tokens,
                              std::string_view origin) {
  std::string more;
  for (const AddedToken& token : tokens) {
    more += (more.empty() ? "\n    " : ",\n    ") + json_of(token);
  }
  Walk walk(json);
  const std::optional<std::size_t> begin = walk.value_of("added_tokens");
  if (begin && *begin < json.size() && json[*begin] == '[') {
    const std::size_t end = walk.end_of_list(*begin);
    const bool is_empty = walk.skip_space(*begin + 1) == end;
    return fmt::format("{}{}{}\n  {}", json.substr(0, end), is_empty || more.empty() ? "" : ",",
                       more, json.substr(end));
  }
  const std::size_t open = json.find('{');
  if (open == json.npos || begin) {
    throw damaged_error("{}: \"added_tokens\" is no list of tokens", origin);
  }
  return fmt::format("{{\n  \"added_tokens\": [{}\n  ],{}", more, json.substr(open + 1));
}

}  // namespace text

Tokenizer Tokenizer::with_special_tokens(std::span<const std::string> tokens) const {
  std::vector<text::AddedToken> added;
  std::int32_t next = vocab_size();
  for (const std::string& token : tokens) {
    if (token.empty()) throw user_error("a special token is an empty text");
    if (text::valid_utf8_prefix(token) != token.size()) {
      throw user_error("special token {} of {} is not valid UTF-8", &token - tokens.data(),
                       tokens.size());
    }
    if (std::count(tokens.begin(), tokens.end(), token) > 1) {
      throw user_error("the special token \"{}\" is there twice", token);
    }
    const std::optional<std::int32_t> known = id_of(token);
    if (known && is_special(*known)) continue;
    added.push_back({.id = known ? *known : next++, .content = token, .special = true});
  }
  if (added.empty()) return *this;
  const std::string json = text::with_added_tokens(to_json(), added, file_name());
  text::TextFrame frame;
  frame.directory = "the tokenizer with more special tokens";
  frame.recorded = {
      .end_of_text = end_of_text(), .before = tokens_before(), .after = tokens_after()};
  return Tokenizer(std::make_shared<const text::Engine>(
      text::parse_tokenizer_json(json, frame.directory), json, frame, frame.directory));
}

}  // namespace atl
