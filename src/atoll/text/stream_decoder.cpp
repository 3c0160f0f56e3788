#include "atoll/text/stream_decoder.h"

#include <utility>

#include "atoll/text/engine.h"
#include "atoll/text/utf8.h"

namespace atl {

/// Hides the decoder from the public header.
struct text::TextState {
  Decoder::Text text;
};

StreamDecoder::StreamDecoder(Tokenizer tokenizer, DecodeOptions options)
    : tokenizer_(std::move(tokenizer)),
      options_(options),
      state_(new text::TextState{text::Decoder::Text(tokenizer_.engine_->decoder)}) {}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(std::int32_t id) {
  if (options_.skip_special && tokenizer_.is_special(id)) return {};
  state_->text.append(id, held_);
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const text::Utf8Step step = text::utf8_step(rest);
    if (step.kind == text::Utf8Kind::kIncomplete) break;
    if (step.kind == text::Utf8Kind::kValid) {
      out += rest.substr(0, step.size);
    } else {
      out += text::kReplacementCharacter;
    }
    rest.remove_prefix(step.size);
  }
  held_ = std::string(rest);
  return out;
}

std::string StreamDecoder::finish() {
  state_->text = text::Decoder::Text(tokenizer_.engine_->decoder);
  if (held_.empty()) return {};
  held_.clear();
  return std::string(text::kReplacementCharacter);
}

}  // namespace atl
