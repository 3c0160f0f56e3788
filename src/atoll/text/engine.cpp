#include "atoll/text/engine.h"

#include <array>
#include <utility>

#include "atoll/base/error.h"

namespace atl::text {

namespace {

// In order of preference: the names under which well-known tokenizers keep the document separator.
constexpr std::array<std::string_view, 8> kEndOfTextNames = {
    "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>",
    "[EOS]",         "<|eos|>",         "<|end_of_document|>"};

std::optional<std::int32_t> find_end_of_text(const std::vector<AddedToken>& tokens) {
  const AddedToken* only = nullptr;
  int num_special = 0;
  for (const AddedToken& token : tokens) {
    if (!token.special) continue;
    only = &token;
    ++num_special;
  }
  for (const std::string_view name : kEndOfTextNames) {
    for (const AddedToken& token : tokens) {
      if (token.special && token.content == name) return token.id;
    }
  }
  if (num_special == 1) return only->id;
  return std::nullopt;
}

}  // namespace

Engine::Engine(const TokenizerSpec& spec, std::string json_text, std::string_view origin)
    : json(std::move(json_text)),
      decoder(spec, origin),
      end_of_text(find_end_of_text(spec.added_tokens)),
      normalizer_(spec.normalizers),
      pre_tokenizer_(spec.pre_tokenizer, origin),
      model_(spec.model, origin),
      prefix_ids_(spec.prefix_ids),
      suffix_ids_(spec.suffix_ids) {
  for (const auto* ids : {&prefix_ids_, &suffix_ids_}) {
    for (const std::int32_t id : *ids) {
      if (!decoder.exists(id)) {
        throw damaged_error("{}: post_processor: the vocabulary has no token of id {}", origin, id);
      }
    }
  }
  for (AddedToken token : spec.added_tokens) {
    if (token.normalized) {
      std::string buffer;
      token.content = std::string(normalizer_.apply(token.content, buffer));
      normalized_tokens_.add(token);
    } else {
      raw_tokens_.add(token);
    }
  }
}

namespace {

// Cuts `text` at the tokens that `finder` knows: their ids go to `out`, the rest to `between`.
template <typename Between>
void cut(const AddedTokenFinder& finder, std::string_view text, bool parse_special,
         std::vector<std::int32_t>& out, Between&& between) {
  std::size_t at = 0;
  while (!finder.empty() && at < text.size()) {
    const auto match = finder.find(text, at, parse_special);
    if (!match) break;
    between(text.substr(at, match->begin - at));
    out.push_back(match->id);
    at = match->end;
  }
  between(text.substr(at));
}

}  // namespace

void Engine::encode(std::string_view text, EncodeOptions options, EncoderState& state,
                    std::vector<std::int32_t>& out) const {
  if (options.add_special) out.insert(out.end(), prefix_ids_.begin(), prefix_ids_.end());
  cut(raw_tokens_, text, options.parse_special, out, [&](std::string_view piece) {
    encode_normalized(normalizer_.apply(piece, state.normalized), options.parse_special, state,
                      out);
  });
  if (options.add_special) out.insert(out.end(), suffix_ids_.begin(), suffix_ids_.end());
}

void Engine::encode_normalized(std::string_view text, bool parse_special, EncoderState& state,
                               std::vector<std::int32_t>& out) const {
  cut(normalized_tokens_, text, parse_special, out,
      [&](std::string_view piece) { encode_words(piece, state, out); });
}

void Engine::encode_words(std::string_view text, EncoderState& state,
                          std::vector<std::int32_t>& out) const {
  pre_tokenizer_.for_each_word(text, state.matcher, [&](std::string_view word) {
    if (!WordCache::keeps(word)) return model_.encode_word(word, state.bpe, out);
    const WordCache::Place place = state.cache.place(word);
    const auto ids = state.cache.find(place);
    if (!ids.empty()) {
      out.insert(out.end(), ids.begin(), ids.end());
      return;
    }
    const std::size_t first = out.size();
    model_.encode_word(word, state.bpe, out);
    state.cache.put(place, std::span<const std::int32_t>(out).subspan(first));
  });
}

}  // namespace atl::text
