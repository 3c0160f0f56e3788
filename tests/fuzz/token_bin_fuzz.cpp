#include "atoll/data/bin_tokens.h"
#include "atoll/data/tokenize.h"
#include "atoll/text/new_tokenizers.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const atl::fuzz::Directory directory;
  static const atl::Tokenizer tokenizers[] = {
      atl::make_byte_tokenizer(),
      atl::Tokenizer::load(ATOLL_SOURCE_DIR "/src/atoll/text/testdata/llama3.json")};
  atl::data::TokenizeOptions options;
  options.inputs = {directory.write("input.bin", atl::fuzz::text(data, size))};
  options.block_bytes = 64;
  for (const atl::Tokenizer& tokenizer : tokenizers) {
    atl::fuzz::expect_result_or_refusal([&] {
      const atl::data::BinTokens file(options.inputs.front(), tokenizer);
      if (file.num_tokens() * file.token_bytes() > size) std::abort();
      const auto tokens = atl::data::tokenize_in_memory(options, tokenizer);
      if (tokens.num_tokens() > static_cast<std::int64_t>(file.num_tokens())) std::abort();
    });
  }
  return 0;
}
