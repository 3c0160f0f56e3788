#include "atoll/text/tokenizer.h"

#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/text/engine.h"

namespace atl {

namespace fs = std::filesystem;

namespace {

constexpr int kEncoderCache = 15;  // 2^15 words, 2 MiB: fits a core's L2
constexpr int kOneCallCache = 8;

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const text::Engine> engine) : engine_(std::move(engine)) {}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view origin) {
  const text::TokenizerSpec spec = text::parse_tokenizer_json(tokenizer_json, origin);
  return Tokenizer(std::make_shared<const text::Engine>(spec, std::string(tokenizer_json), origin));
}

Tokenizer Tokenizer::load(const fs::path& path) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? path / "tokenizer.json" : path;
  if (!fs::exists(file, ignored)) {
    throw user_error("no tokenizer at {}: expected a tokenizer.json or a directory with one",
                     file.string());
  }
  return from_json(read_file(file), file.string());
}

Tokenizer Tokenizer::from_spec(const text::TokenizerSpec& spec) {
  return Tokenizer(std::make_shared<const text::Engine>(spec, text::write_tokenizer_json(spec),
                                                        "the new tokenizer"));
}

const std::string& Tokenizer::to_json() const {
  return engine_->json;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<std::int32_t> ids;
  TokenEncoder(engine_, kOneCallCache).encode(text, ids, options);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, DecodeOptions options) const {
  std::string out;
  for (const std::int32_t id : ids) {
    const std::string_view bytes = engine_->decoder.bytes(id);
    if (!options.skip_special || !engine_->decoder.is_special(id)) out += bytes;
  }
  return out;
}

std::int32_t Tokenizer::vocab_size() const {
  return engine_->decoder.vocab_size();
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  return engine_->decoder.id_of(token);
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  return engine_->decoder.bytes(id);
}

bool Tokenizer::is_special(std::int32_t id) const {
  return engine_->decoder.is_special(id);
}

std::optional<std::int32_t> Tokenizer::end_of_text() const {
  return engine_->end_of_text;
}

TokenEncoder::TokenEncoder(const Tokenizer& tokenizer)
    : TokenEncoder(tokenizer.engine_, kEncoderCache) {}

TokenEncoder::TokenEncoder(std::shared_ptr<const text::Engine> engine, int log2_cache_slots)
    : engine_(std::move(engine)), state_(std::make_unique<text::EncoderState>(log2_cache_slots)) {}

TokenEncoder::~TokenEncoder() = default;
TokenEncoder::TokenEncoder(TokenEncoder&&) noexcept = default;
TokenEncoder& TokenEncoder::operator=(TokenEncoder&&) noexcept = default;

void TokenEncoder::encode(std::string_view text, std::vector<std::int32_t>& out,
                          EncodeOptions options) {
  engine_->encode(text, options, *state_, out);
}

}  // namespace atl
