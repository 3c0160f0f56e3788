#include "atoll/text/tokenizer.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  atl::fuzz::expect_result_or_refusal([&] {
    const auto tokenizer =
        atl::Tokenizer::from_bytes(atl::fuzz::text(data, size), "tokenizer.model", "input");
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) (void)tokenizer.token_bytes(id);
    (void)tokenizer.end_of_text();
    const auto ids = tokenizer.encode("Hello,  w\xc3\xb6rld 123\n\t\xff <s>[INST]\xef\xac\x81");
    (void)tokenizer.decode(ids);
    (void)tokenizer.decode(tokenizer.encode("ab a b aab", {.add_special = true}),
                           {.skip_special = true});
  });
  return 0;
}
