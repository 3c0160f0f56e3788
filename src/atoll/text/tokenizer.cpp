#include "atoll/text/tokenizer.h"

#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/text/engine.h"
#include "atoll/text/sentence_piece/sentence_piece_json.h"

namespace atl {

namespace fs = std::filesystem;

namespace {

constexpr int kEncoderCache = 15;  // 2^15 words, 2 MiB: fits a core's L2
constexpr int kOneCallCache = 8;
constexpr std::string_view kJsonName = "tokenizer.json";
constexpr std::string_view kModelName = "tokenizer.model";

std::shared_ptr<const text::Engine> sentence_piece(std::string_view content,
                                                   const text::TextFrame& frame,
                                                   std::string_view origin) {
  const text::SentencePieceSpec spec = text::parse_sentence_piece(content, origin);
  return std::make_shared<const text::Engine>(spec, std::string(content), frame, origin);
}

std::shared_ptr<const text::Engine> byte_pairs(std::string json, const text::TextFrame& frame,
                                               std::string_view origin) {
  text::TokenizerSpec spec = text::parse_tokenizer_json(json, origin);
  return std::make_shared<const text::Engine>(std::move(spec), std::move(json), frame, origin);
}

// Files of tokenizers that transformers turns into a tokenizer.json.
std::string advice_for_slow_tokenizer(const fs::path& directory) {
  for (const char* name :
       {"vocab.json", "vocab.txt", "merges.txt", "tekken.json", "spiece.model"}) {
    if (!path_exists(directory / name)) continue;
    return fmt::format(
        "; of its {} transformers makes one: "
        "AutoTokenizer.from_pretrained(\"{}\").save_pretrained(\"{}\")",
        name, directory.string(), directory.string());
  }
  return "";
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const text::Engine> engine) : engine_(std::move(engine)) {}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view origin) {
  return Tokenizer(byte_pairs(std::string(tokenizer_json), {}, origin));
}

Tokenizer Tokenizer::from_bytes(std::string_view content, std::string_view file_name,
                                std::string_view origin) {
  if (file_name == kJsonName) return from_json(content, origin);
  if (file_name == kModelName) return Tokenizer(sentence_piece(content, {}, origin));
  throw user_error("{}: \"{}\" is no tokenizer's file name: {} and {} are", origin, file_name,
                   kJsonName, kModelName);
}

Tokenizer Tokenizer::load(const fs::path& path) {
  fs::path file = path;
  if (directory_exists(path)) {
    file = path / kJsonName;
    if (!path_exists(file)) file = path / kModelName;
    if (!path_exists(file)) {
      throw user_error("no tokenizer in {}: it has neither a {} nor a {}{}", path.string(),
                       kJsonName, kModelName, advice_for_slow_tokenizer(path));
    }
  }
  if (!path_exists(file)) {
    throw user_error("no tokenizer at {}: expected a {}, a {} or a directory with one{}",
                     path.string(), kJsonName, kModelName, advice_for_absent(path));
  }
  const text::TextFrame frame = text::read_text_frame(file.parent_path());
  std::string content = read_file(file, kMaxListBytes);
  if (file.extension() == ".model") {
    return Tokenizer(sentence_piece(content, frame, file.string()));
  }
  return Tokenizer(byte_pairs(std::move(content), frame, file.string()));
}

Tokenizer Tokenizer::from_spec(const text::TokenizerSpec& spec) {
  return Tokenizer(std::make_shared<const text::Engine>(spec, text::write_tokenizer_json(spec),
                                                        text::TextFrame(), "the new tokenizer"));
}

const std::string& Tokenizer::file_name() const {
  return engine_->file.name;
}

const std::string& Tokenizer::file_content() const {
  return engine_->file.content;
}

std::string Tokenizer::to_json() const {
  if (file_name() == kJsonName) return file_content();
  return text::sentence_piece_to_json(text::parse_sentence_piece(file_content(), file_name()),
                                      tokens_before(), tokens_after(), file_name());
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<std::int32_t> ids;
  TokenEncoder(engine_, kOneCallCache).encode(text, ids, options);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, DecodeOptions options) const {
  std::string out;
  text::Decoder::Text text(engine_->decoder);
  for (const std::int32_t id : ids) {
    const bool skip = options.skip_special && engine_->decoder.is_special(id);
    if (!skip) text.append(id, out);
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

std::optional<std::pair<std::size_t, std::size_t>> Tokenizer::find_special(
    std::string_view text, std::size_t start) const {
  return engine_->find_special(text, start);
}

bool Tokenizer::is_special(std::int32_t id) const {
  return engine_->decoder.is_special(id);
}

const std::vector<std::int32_t>& Tokenizer::tokens_before() const {
  return engine_->prefix_ids;
}

const std::vector<std::int32_t>& Tokenizer::tokens_after() const {
  return engine_->suffix_ids;
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
  ATOLL_CHECK(!state_->within_text, "another text is encoded in parts");
  engine_->encode(text, options, *state_, out);
}

void TokenEncoder::encode_part(std::string_view part, bool last, std::vector<std::int32_t>& out) {
  const text::SentencePiece::Part which = {.first = !state_->within_text, .last = last};
  state_->within_text = !last;
  engine_->encode(part, {.parse_special = false}, *state_, out, which);
}

}  // namespace atl
