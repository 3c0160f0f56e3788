#pragma once

#include "atoll/base/files/test_paths.h"
#include "atoll/data/tokenization.h"
#include "fuzz.h"

namespace atl::fuzz {

/// Reads files into nothing, checking what comes: tokens of the vocabulary, a mask byte for each or
/// none at all. Kept from input to input, since making an encoder takes longer than most inputs.
class TokenChecker final : public data::DocumentSink {
 public:
  TokenChecker(const Tokenizer& tokenizer, data::TokenizeOptions options)
      : tokenizer_(tokenizer),
        options_(std::move(options)),
        tokenization_(*this, tokenizer_, options_, /*block_bytes=*/64, progress_, {}) {}

  /// Throws what reading the file does.
  void read(const std::filesystem::path& file) { tokenization_.add_file(file); }

  void begin_document(data::Split /*split*/) override {}
  void append(data::Split /*split*/, std::span<const std::int32_t> tokens,
              std::span<const std::uint8_t> mask) override {
    if (!mask.empty() && mask.size() != tokens.size()) std::abort();
    for (const std::int32_t token : tokens) {
      if (token < 0 || token >= tokenizer_.vocab_size()) std::abort();
    }
  }

 private:
  Tokenizer tokenizer_;
  data::TokenizeOptions options_;
  data::TokenizeProgress progress_;
  data::Tokenization tokenization_;
};

/// One of the fixtures of text/.
inline Tokenizer fixture_tokenizer(std::string_view name) {
  return Tokenizer::load(atl::test_source_dir() / "src/atoll/text/testdata" / name);
}

}  // namespace atl::fuzz
