#include <algorithm>
#include <vector>

#include "atoll/base/files/test_paths.h"
#include "atoll/serve/grammar/constraint.h"
#include "atoll/text/tokenizer.h"
#include "fuzz.h"

// The first byte says what the rest is: a schema, a regular expression, a grammar or choices. A
// form that is taken must also give masks, of which some token is allowed until the text is over.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using atl::serve::FormatRequest;
  static const atl::Tokenizer tokenizer =
      atl::Tokenizer::load(atl::test_source_dir() / "src/atoll/text/testdata/gpt2.json");
  if (size == 0) return 0;
  constexpr FormatRequest::Kind kKinds[] = {FormatRequest::kJsonSchema, FormatRequest::kRegex,
                                            FormatRequest::kGrammar, FormatRequest::kChoice};
  const FormatRequest request = {kKinds[data[0] % 4],
                                 std::string(atl::fuzz::text(data + 1, size - 1))};
  atl::fuzz::expect_result_or_refusal([&] {
    constexpr std::int32_t kEnd = 0;
    atl::serve::GrammarCache cache(tokenizer);
    const auto constraint = atl::serve::make_constraint(request, cache, {&kEnd, 1});
    std::vector<std::uint64_t> bits((static_cast<std::size_t>(tokenizer.vocab_size()) + 63) / 64);
    for (std::size_t step = 0; step < 12 && !constraint->is_over(); ++step) {
      std::fill(bits.begin(), bits.end(), ~std::uint64_t{0});
      constraint->mask(bits);
      std::vector<std::int32_t> tokens;
      for (std::int32_t i = 0; i < tokenizer.vocab_size(); ++i) {
        if ((bits[static_cast<std::size_t>(i) / 64] >> (i % 64) & 1) != 0) tokens.push_back(i);
      }
      if (tokens.empty()) std::abort();
      constraint->accept(tokens[(data[step % size] * 31 + step) % tokens.size()]);
    }
  });
  return 0;
}
