#include "atoll/serve/grammar/testing.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/serve/grammar/automaton.h"

namespace atl::serve::grammar::testing {

Tokenizer tokenizer_fixture(std::string_view name) {
  return Tokenizer::load(test_source_dir() / "src/atoll/text/testdata" /
                         (std::string(name) + ".json"));
}

bool matches(const Grammar& grammar, std::string_view text) {
  Automaton automaton(std::make_shared<const Grammar>(grammar));
  StateId state = automaton.start();
  for (const char byte : text) state = automaton.step(state, static_cast<std::uint8_t>(byte));
  return automaton.may_end(state);
}

std::vector<std::int32_t> allowed_tokens(TokenConstraint& constraint, const Tokenizer& tokenizer) {
  const auto size = static_cast<std::size_t>(tokenizer.vocab_size());
  std::vector<std::uint64_t> bits((size + 63) / 64, ~std::uint64_t{0});
  constraint.mask(bits);
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < 64 * bits.size(); ++i) {
    if ((bits[i / 64] >> (i % 64) & 1) != 0) tokens.push_back(static_cast<std::int32_t>(i));
  }
  return tokens;
}

std::optional<std::string> draw_text(TokenConstraint& constraint, const Tokenizer& tokenizer,
                                     std::int32_t end_token, text::testing::Random& random,
                                     int calm_after, int max_tokens) {
  std::string text;
  for (int i = 0; i < max_tokens; ++i) {
    if (constraint.is_over()) return text;
    const std::vector<std::int32_t> tokens = allowed_tokens(constraint, tokenizer);
    ATOLL_CHECK(!tokens.empty(), "nothing may follow {}", text);
    std::int32_t token = tokens[random.below(tokens.size())];
    if (i >= calm_after) {
      const auto closes = [&](std::int32_t candidate) {
        const std::string_view bytes = tokenizer.token_bytes(candidate);
        return bytes == "\"" || bytes == "]" || bytes == "}" || bytes == "0";
      };
      const auto found = std::find_if(tokens.begin(), tokens.end(), closes);
      if (found != tokens.end()) token = *found;
      if (std::find(tokens.begin(), tokens.end(), end_token) != tokens.end()) token = end_token;
    }
    if (token == end_token) return text;
    text += tokenizer.token_bytes(token);
    constraint.accept(token);
  }
  return std::nullopt;
}

std::string refusal(const FormatRequest& request) {
  static const Tokenizer tokenizer = tokenizer_fixture("byte");
  GrammarCache cache(tokenizer);
  try {
    (void)cache.masks(request);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kUser ? error.what() : "no user's error";
  }
  return "";
}

}  // namespace atl::serve::grammar::testing
