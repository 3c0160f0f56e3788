#include "atoll/text/tokenizer.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  atl::fuzz::expect_result_or_refusal([&] {
    const auto tokenizer = atl::Tokenizer::from_json(atl::fuzz::text(data, size), "input");
    const auto ids = tokenizer.encode("Hello, w\xc3\xb6rld 123\n\t\xff <|endoftext|>", {});
    (void)tokenizer.decode(ids);
    (void)tokenizer.end_of_text();
  });
  return 0;
}
