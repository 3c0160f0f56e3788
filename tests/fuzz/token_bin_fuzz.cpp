#include "atoll/data/bin_tokens.h"
#include "token_sink.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const atl::fuzz::Directory directory;
  // Has <|begin_of_text|>, which begins the documents of llm.c.
  static const atl::Tokenizer tokenizer = atl::fuzz::fixture_tokenizer("llama3.json");
  static atl::fuzz::TokenChecker reader(tokenizer, {});
  const auto path = directory.write("input.bin", atl::fuzz::text(data, size));
  atl::fuzz::expect_result_or_refusal([&] {
    const atl::data::BinTokens file(path, tokenizer);
    if (file.num_tokens() * file.token_bytes() > size) std::abort();
    reader.read(path);
  });
  return 0;
}
