#include "atoll/serve/api/logprobs_text.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "atoll/serve/api/json_text.h"
#include "atoll/text/utf8.h"

namespace atl::serve::api {

namespace {

void append(std::string& list, const std::string& element) {
  if (!list.empty()) list += ',';
  list += element;
}

}  // namespace

// Of a row that the model has beyond its tokenizer: none.
std::string_view LogprobsText::bytes_of(std::int32_t token) const {
  return token < tokenizer_.vocab_size() ? tokenizer_.token_bytes(token) : "";
}

// A token that is no whole characters is shown as its bytes, as OpenAI does.
std::string LogprobsText::spelling(std::int32_t token) const {
  const std::string_view bytes = bytes_of(token);
  if (text::valid_utf8_prefix(bytes) == bytes.size()) return std::string(bytes);
  std::string shown = "bytes:";
  for (const char byte : bytes) {
    shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return shown;
}

std::string LogprobsText::chat_entry(std::int32_t token, double logprob) const {
  std::string bytes;
  for (const char byte : bytes_of(token)) {
    append(bytes, std::to_string(static_cast<unsigned char>(byte)));
  }
  return fmt::format("\"token\":{},\"logprob\":{},\"bytes\":[{}]", json_string(spelling(token)),
                     logprob_text(logprob), bytes);
}

void LogprobsText::add_to_chat(const PlacedToken& token) {
  std::string top;
  for (const auto& [id, logprob] : token.token.top) {
    append(top, "{" + chat_entry(id, logprob) + "}");
  }
  append(tokens_, fmt::format("{{{},\"top_logprobs\":[{}]}}",
                              chat_entry(token.token.token, token.token.logprob), top));
}

void LogprobsText::add_to_completion(const PlacedToken& token) {
  append(tokens_, json_string(spelling(token.token.token)));
  append(offsets_, std::to_string(token.characters));
  append(logprobs_, token.has_logprob ? logprob_text(token.token.logprob) : "null");
  if (num_top_ == 0 || !token.has_logprob) {
    append(tops_, "null");
    return;
  }
  std::string top;
  std::set<std::string> names;  // two ids may have one spelling: the likelier one stays
  for (const auto& [id, logprob] : token.token.top) {
    const std::string name = json_string(spelling(id));
    if (names.insert(name).second) append(top, name + ":" + logprob_text(logprob));
  }
  append(tops_, "{" + top + "}");
}

void LogprobsText::add(const PlacedToken& token) {
  if (is_chat_) {
    add_to_chat(token);
  } else {
    add_to_completion(token);
  }
}

std::string LogprobsText::take() {
  const std::string tokens = std::exchange(tokens_, "");
  if (is_chat_) return fmt::format("{{\"content\":[{}],\"refusal\":null}}", tokens);
  return fmt::format(
      "{{\"tokens\":[{}],\"token_logprobs\":[{}],\"top_logprobs\":[{}],\"text_offset\":[{}]}}",
      tokens, std::exchange(logprobs_, ""), std::exchange(tops_, ""), std::exchange(offsets_, ""));
}

}  // namespace atl::serve::api
