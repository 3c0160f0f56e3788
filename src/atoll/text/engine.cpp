#include "atoll/text/engine.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::text {

namespace {

// The names under which well-known tokenizers keep the end of a text, in order of preference: for a
// tokenizer that came alone. A model's own files say which it is, and the name may be any.
constexpr std::array<std::string_view, 8> kEndOfTextNames = {
    "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>",
    "[EOS]",         "<|eos|>",         "<|end_of_document|>"};

// Positions in a text are 32-bit numbers where many are kept.
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

// What the files beside a tokenizer say. One that names a token which the tokenizer lacks says
// nothing: configurations keep the ids of the model that they were copied from.
std::optional<std::int32_t> stated_end_of_text(const Decoder& decoder, const TextFrame& frame) {
  if (frame.eos_token) {
    if (const auto id = decoder.id_of(*frame.eos_token)) return id;
  }
  for (const std::int64_t id : frame.eos_ids) {
    if (id < decoder.vocab_size() && decoder.exists(static_cast<std::int32_t>(id))) {
      return static_cast<std::int32_t>(id);
    }
  }
  return std::nullopt;
}

std::optional<std::int32_t> end_of_text_by_name(const std::vector<AddedToken>& tokens) {
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

Engine::Engine(TokenizerSpec spec, std::string json, const TextFrame& frame,
               std::string_view origin)
    : Engine(settle_token_ids(std::move(spec), origin), std::move(json), frame, origin) {}

Engine::Engine(const SettledSpec& settled, std::string json, const TextFrame& frame,
               std::string_view origin)
    : file{"tokenizer.json", std::move(json)},
      decoder(settled.spec, settled.vocab, origin),
      end_of_text(stated_end_of_text(decoder, frame)),
      prefix_ids(settled.spec.prefix_ids),
      suffix_ids(settled.spec.suffix_ids),
      normalizer_(std::in_place, settled.spec.normalizers, origin),
      pre_tokenizer_(std::in_place, settled.spec.pre_tokenizer, origin) {
  if (settled.spec.model_kind == ModelKind::kBpe) {
    model_.emplace(settled.spec.model, settled.vocab, origin);
  } else {
    word_model_.emplace(settled.spec, settled.vocab, origin);
  }
  const std::vector<AddedToken>& added_tokens = settled.spec.added_tokens;
  if (!end_of_text) end_of_text = end_of_text_by_name(added_tokens);
  for (const auto* ids : {&prefix_ids, &suffix_ids}) {
    for (const std::int32_t id : *ids) {
      if (!decoder.exists(id)) {
        throw damaged_error("{}: post_processor: the vocabulary has no token of id {}", origin, id);
      }
    }
  }
  RegexMatcher matcher;
  for (AddedToken token : added_tokens) {
    if (token.normalized) {
      std::string buffer;
      token.content = std::string(normalizer_->apply(token.content, matcher, buffer));
      if (!token.content.empty()) normalized_tokens_.add(token);  // else it is never found
    } else {
      raw_tokens_.add(token);
    }
  }
  take_recorded(frame);
}

// The tokens of a corpus stay what they are when a later version reads the tokenizer otherwise.
void Engine::take_recorded(const TextFrame& frame) {
  if (!frame.recorded) return;
  const auto check = [&](std::int32_t id, const char* key) {
    if (decoder.exists(id)) return;
    throw damaged_error(
        "{}/corpus.json: \"{}\": the vocabulary has no token of id {}; run atoll "
        "tokenize again",
        frame.directory, key, id);
  };
  end_of_text = frame.recorded->end_of_text;
  prefix_ids = frame.recorded->before;
  suffix_ids = frame.recorded->after;
  if (end_of_text) check(*end_of_text, "end_of_text");
  for (const std::int32_t id : prefix_ids) check(id, "before");
  for (const std::int32_t id : suffix_ids) check(id, "after");
}

namespace {

// A model's control pieces are to its text what special tokens are to a tokenizer.json's.
std::vector<AddedToken> control_tokens(const SentencePieceSpec& spec) {
  std::vector<AddedToken> tokens;
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    if (spec.pieces[i].type != SentencePieceSpec::Type::kControl) continue;
    tokens.push_back(
        {.id = static_cast<std::int32_t>(i), .content = spec.pieces[i].text, .special = true});
  }
  return tokens;
}

// The token that a tokenizer_config.json wants round every text.
std::int32_t frame_id(const Decoder& decoder, const TextFrame& frame, std::string_view which,
                      const std::string& token) {
  if (const auto id = decoder.id_of(token)) return *id;
  throw user_error(
      "{}: \"add_{}_token\" is true, and the tokenizer.model beside it has no token \"{}\"; give "
      "the name of one that it has as \"{}_token\", or say false",
      frame.origin, which, token, which);
}

}  // namespace

Engine::Engine(const SentencePieceSpec& spec, std::string model, const TextFrame& frame,
               std::string_view origin)
    : file{"tokenizer.model", std::move(model)},
      decoder(spec, origin),
      end_of_text(stated_end_of_text(decoder, frame)),
      sentence_piece_(std::in_place, spec, origin) {
  const std::vector<AddedToken> controls = control_tokens(spec);
  for (const AddedToken& token : controls) {
    raw_tokens_.add(token);
    if (!end_of_text && token.content == spec.eos_piece) end_of_text = token.id;
    // What Llama's tokenizers do unless they are told otherwise.
    if (token.content == spec.bos_piece && frame.add_bos.value_or(true)) prefix_ids = {token.id};
  }
  if (frame.add_bos.value_or(false)) {
    prefix_ids = {frame_id(decoder, frame, "bos", frame.bos_token.value_or(spec.bos_piece))};
  }
  if (frame.add_eos.value_or(false)) {
    suffix_ids = {frame_id(decoder, frame, "eos", frame.eos_token.value_or(spec.eos_piece))};
  }
  if (!end_of_text) end_of_text = end_of_text_by_name(controls);
  take_recorded(frame);
}

namespace {

// Cuts `text` at the tokens that `finder` knows: their ids go to `out`, the rest to `between`.
// `text` begins at byte `offset` of the one that options.literal is about.
template <typename Between>
void cut(const AddedTokenFinder& finder, std::string_view text, std::size_t offset,
         const EncodeOptions& options, std::vector<std::int32_t>& out, Between&& between) {
  std::size_t at = 0;
  while (!finder.empty() && at < text.size()) {
    const auto match = finder.find(text, at, options.parse_special, options.literal, offset);
    if (!match) break;
    between(text.substr(at, match->begin - at), at == 0);
    out.push_back(match->id);
    at = match->end;
  }
  between(text.substr(at), at == 0);
}

// Where in `text` the view `part` begins; nothing when it is of another string.
std::optional<std::size_t> offset_in(std::string_view text, const char* part) {
  const std::less_equal<const char*> before;
  if (!before(text.data(), part) || !before(part, text.data() + text.size())) return std::nullopt;
  return static_cast<std::size_t>(part - text.data());
}

[[noreturn]] void throw_unknown(std::string_view text, std::string_view word, std::size_t at) {
  const std::string_view rest = word.substr(at);
  const Utf8Step step = utf8_step(rest);
  std::string what = fmt::format("the byte 0x{:02x}, which is not UTF-8,",
                                 static_cast<unsigned char>(rest.front()));
  if (step.kind == Utf8Kind::kValid) {
    const auto code = static_cast<std::uint32_t>(decode_utf8(rest.substr(0, step.size)));
    // A control character would break the message's line, or end it.
    const bool prints = code >= 0x20 && code != 0x7f;
    what = prints ? fmt::format("the character \"{}\" (U+{:04X})", rest.substr(0, step.size), code)
                  : fmt::format("the character U+{:04X}", code);
  }
  const auto offset = offset_in(text, rest.data());
  throw user_error(
      "{} at {} has no token, and the tokenizer has none for unknown characters: remove it, or "
      "take a tokenizer that knows it",
      what,
      offset ? fmt::format("byte {} of the text", *offset)
             : fmt::format("byte {} of the normalized word \"{}\"", at, word.substr(0, 40)));
}

[[noreturn]] void throw_unknown_word(std::string_view word) {
  throw user_error(
      "the word \"{}\" has no token, and the tokenizer has none for unknown words: remove it, or "
      "take a tokenizer that knows it",
      word.substr(0, 40));
}

}  // namespace

void Engine::encode(std::string_view text, EncodeOptions options, EncoderState& state,
                    std::vector<std::int32_t>& out, SentencePiece::Part part) const {
  if (text.size() > kMaxTextBytes) {
    throw user_error("a text of {} bytes: at most {} can be encoded at once; cut it into documents",
                     text.size(), kMaxTextBytes);
  }
  state.text = text;
  if (options.add_special) out.insert(out.end(), prefix_ids.begin(), prefix_ids.end());
  cut(raw_tokens_, text, 0, options, out, [&](std::string_view piece, bool starts) {
    if (sentence_piece_) return sentence_piece_->encode(piece, state.sentence_piece, out, part);
    const TextStart start = !starts      ? TextStart::kAfterToken
                            : part.first ? TextStart::kFirst
                                         : TextStart::kGoesOn;
    encode_normalized(piece, static_cast<std::size_t>(piece.data() - text.data()),
                      normalizer_->apply(piece, state.matcher, state.normalized, start), options,
                      start, state, out);
  });
  if (options.add_special) out.insert(out.end(), suffix_ids.begin(), suffix_ids.end());
}

void Engine::encode_normalized(std::string_view raw, std::size_t offset, std::string_view piece,
                               EncodeOptions options, TextStart start, EncoderState& state,
                               std::vector<std::int32_t>& out) const {
  const auto first = std::lower_bound(options.literal.begin(), options.literal.end(), offset);
  const bool has_literal = first != options.literal.end() && *first < offset + raw.size();
  if (has_literal && raw != piece && normalized_tokens_.find_special(piece, 0)) {
    throw user_error(
        "a special token that is to be text, at byte {}: the tokenizer changes the text before it "
        "looks for special tokens, so that they cannot be told apart; take the token out of the "
        "text",
        *first);
  }
  cut(normalized_tokens_, piece, offset, options, out, [&](std::string_view part, bool starts) {
    encode_words(part, starts ? start : TextStart::kAfterToken, state, out);
  });
}

std::optional<std::pair<std::size_t, std::size_t>> Engine::find_special(std::string_view text,
                                                                        std::size_t start) const {
  std::optional<std::pair<std::size_t, std::size_t>> found;
  for (const AddedTokenFinder* finder : {&raw_tokens_, &normalized_tokens_}) {
    const auto match = finder->find_special(text, start);
    if (match && (!found || match->begin < found->first)) found = {match->begin, match->end};
  }
  return found;
}

void Engine::encode_words(std::string_view piece, TextStart start, EncoderState& state,
                          std::vector<std::int32_t>& out) const {
  const auto encode_word = [&](std::string_view word) {
    if (word_model_) {
      if (!word_model_->encode_word(word, state.words, out)) throw_unknown_word(word);
      return;
    }
    if (model_->encode_word(word, state.bpe, out)) return;
    throw_unknown(state.text, word, model_->first_unknown(word));
  };
  const auto cached = [&](std::string_view word) {
    if (!WordCache::keeps(word)) return encode_word(word);
    const WordCache::Place place = state.cache.place(word);
    const auto ids = state.cache.find(place);
    if (!ids.empty()) {
      out.insert(out.end(), ids.begin(), ids.end());
      return;
    }
    const std::size_t first = out.size();
    encode_word(word);
    state.cache.put(place, std::span<const std::int32_t>(out).subspan(first));
  };
  pre_tokenizer_->for_each_word(piece, state.matcher, cached, start);
}

}  // namespace atl::text
