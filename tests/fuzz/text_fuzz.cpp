#include "atoll/text/utf8.h"
#include "token_sink.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const atl::fuzz::Directory directory;
  // Bytes as they are, and normalizers that change them.
  static atl::fuzz::TokenChecker readers[] = {{atl::fuzz::fixture_tokenizer("smollm2.json"),
                                               {.documents = atl::data::DocumentMode::kBlankLine}},
                                              {atl::fuzz::fixture_tokenizer("qwen2.json"), {}}};
  const std::string_view text = atl::fuzz::text(data, size);
  const auto path = directory.write("input.txt", text);
  const bool is_text = text.find('\0') == std::string_view::npos &&
                       atl::text::valid_utf8_prefix(text) == text.size();
  for (atl::fuzz::TokenChecker& reader : readers) {
    atl::fuzz::expect_result_or_refusal([&] {
      reader.read(path);
      if (!is_text) std::abort();  // what no text has became tokens
    });
  }
  return 0;
}
