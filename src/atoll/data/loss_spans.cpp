#include "atoll/data/loss_spans.h"

#include "atoll/base/check.h"

namespace atl::data {

namespace {

std::size_t bytes_of(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens) {
  std::size_t bytes = 0;
  for (const std::int32_t token : tokens) bytes += tokenizer.token_bytes(token).size();
  return bytes;
}

// Whether the tokens' bytes are `text`. Their number does not say it: a normalizer that puts a
// space before a text and takes one out of it keeps the number.
bool spell(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens,
           std::string_view text) {
  for (const std::int32_t token : tokens) {
    const std::string_view bytes = tokenizer.token_bytes(token);
    if (!text.starts_with(bytes)) return false;
    text.remove_prefix(bytes.size());
  }
  return text.empty();
}

void check_spans(std::span<const ByteSpan> spans, std::size_t size) {
  std::size_t end = 0;
  for (const ByteSpan& span : spans) {
    ATOLL_CHECK(end <= span.first && span.first <= span.second && span.second <= size,
                "bytes {} to {} of {}, after {}", span.first, span.second, size, end);
    end = span.second;
  }
}

}  // namespace

void encode_spans(TokenEncoder& encoder, const Tokenizer& tokenizer, std::string_view text,
                  std::span<const ByteSpan> trained, EncodeOptions options,
                  std::vector<std::int32_t>& tokens, std::vector<std::uint8_t>& mask) {
  check_spans(trained, text.size());
  const std::size_t first = tokens.size();
  encoder.encode(text, tokens, options);
  const std::span encoded = std::span(tokens).subspan(first);
  const bool verbatim = spell(tokenizer, encoded, text);
  std::vector<std::int32_t> prefix;
  const auto place = [&](std::size_t byte) {
    if (verbatim) return byte;
    prefix.clear();
    encoder.encode(text.substr(0, byte), prefix, options);
    return bytes_of(tokenizer, prefix);
  };

  std::vector<ByteSpan> places;
  for (const ByteSpan& span : trained) places.emplace_back(place(span.first), place(span.second));
  std::size_t at = 0;
  std::size_t span = 0;  // the first that does not end before `at`
  for (const std::int32_t token : encoded) {
    while (span < places.size() && places[span].second <= at) ++span;
    mask.push_back(span < places.size() && places[span].first <= at);
    at += tokenizer.token_bytes(token).size();
  }
}

}  // namespace atl::data
