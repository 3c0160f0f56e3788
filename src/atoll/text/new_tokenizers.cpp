#include "atoll/text/new_tokenizers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/text/byte_level.h"
#include "atoll/text/tokenizer_spec.h"
#include "atoll/text/utf8.h"

namespace atl {

namespace {

constexpr char32_t kNumCodePoints = 0x110000;
constexpr std::string_view kEndOfTextName = "<|endoftext|>";

void mark_chars(std::string_view text, const std::string& name, std::vector<bool>& seen) {
  for (std::size_t at = 0; at < text.size();) {
    const text::Utf8Step step = text::utf8_step(text.substr(at));
    if (step.kind != text::Utf8Kind::kValid) {
      throw user_error(
          "{}: byte {} (0x{:02x}) is not UTF-8, so there is no character to make a token of: "
          "convert the text, or take the byte tokenizer",
          name, at, static_cast<unsigned char>(text[at]));
    }
    seen[text::decode_utf8(text.substr(at, step.size))] = true;
    at += step.size;
  }
}

void add_special(std::span<const std::string> tokens, text::TokenizerSpec& spec) {
  for (const std::string& token : tokens) {
    if (token.empty() || text::valid_utf8_prefix(token) != token.size()) {
      throw user_error("the special token \"{}\" is {}", token,
                       token.empty() ? "empty" : "not valid UTF-8");
    }
    const auto& vocab = spec.model.vocab;
    const bool is_there = std::any_of(vocab.begin(), vocab.end(),
                                      [&](const auto& entry) { return entry.first == token; });
    if (is_there && token == kEndOfTextName) continue;  // everybody's
    if (is_there) {
      throw user_error("the special token \"{}\" is a token already, or given twice", token);
    }
    const auto id = static_cast<std::int32_t>(vocab.size());
    spec.model.vocab.emplace_back(token, id);
    spec.added_tokens.push_back({.id = id, .content = token, .special = true});
  }
}

}  // namespace

Tokenizer make_byte_tokenizer(std::span<const std::string> special_tokens) {
  constexpr std::int32_t kEndOfText = 256;
  text::TokenizerSpec spec;
  for (std::int32_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    spec.model.vocab.emplace_back(text::to_byte_level({&c, 1}), byte);
  }
  spec.model.vocab.emplace_back(kEndOfTextName, kEndOfText);
  spec.added_tokens.push_back(
      {.id = kEndOfText, .content = std::string(kEndOfTextName), .special = true});
  add_special(special_tokens, spec);
  return Tokenizer::from_spec(spec);
}

Tokenizer make_char_tokenizer(std::span<const std::string_view> texts,
                              std::span<const std::string> names,
                              std::span<const std::string> special_tokens) {
  ATOLL_CHECK(names.empty() || names.size() == texts.size(), "{} names", names.size());
  std::vector<bool> seen(kNumCodePoints);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    mark_chars(texts[i], names.empty() ? fmt::format("text {}", i) : names[i], seen);
  }
  text::TokenizerSpec spec;
  spec.model.byte_level = false;
  for (char32_t c = 0; c < kNumCodePoints; ++c) {
    if (!seen[c]) continue;
    std::string token;
    text::append_utf8(c, token);
    spec.model.vocab.emplace_back(std::move(token),
                                  static_cast<std::int32_t>(spec.model.vocab.size()));
  }
  if (spec.model.vocab.empty()) throw user_error("a text without characters gives no tokenizer");
  add_special(special_tokens, spec);
  return Tokenizer::from_spec(spec);
}

}  // namespace atl
