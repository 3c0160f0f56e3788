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
  if (tokenizer_.engine_->decoder.joins_run_of_bytes(id)) {
    run_.push_back(id);
    return {};
  }
  end_run();
  state_->text.append(id, held_);
  return release();
}

void StreamDecoder::end_run() {
  if (run_.empty()) return;
  std::string bytes;
  for (const std::int32_t id : run_) bytes += tokenizer_.token_bytes(id);
  if (text::valid_utf8_prefix(bytes) == bytes.size()) {
    for (const std::int32_t id : run_) state_->text.append(id, held_);
  } else {
    for (std::size_t i = 0; i < run_.size(); ++i) held_ += text::kReplacementCharacter;
    state_->text.begin();
  }
  run_.clear();
}

std::string StreamDecoder::release() {
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

std::string StreamDecoder::settle() {
  end_run();
  return release();
}

std::string StreamDecoder::finish() {
  std::string out = settle();
  if (!held_.empty()) out += text::kReplacementCharacter;
  held_.clear();
  state_->text = text::Decoder::Text(tokenizer_.engine_->decoder);
  return out;
}

}  // namespace atl
