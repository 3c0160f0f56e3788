#include "atoll/text/stream_decoder.h"

#include <utility>

#include "atoll/text/utf8.h"

namespace atl {

StreamDecoder::StreamDecoder(Tokenizer tokenizer, DecodeOptions options)
    : tokenizer_(std::move(tokenizer)), options_(options) {}

std::string StreamDecoder::push(std::int32_t id) {
  const std::string_view bytes = tokenizer_.token_bytes(id);
  if (options_.skip_special && tokenizer_.is_special(id)) return {};
  held_ += bytes;
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
  if (held_.empty()) return {};
  held_.clear();
  return std::string(text::kReplacementCharacter);
}

}  // namespace atl
