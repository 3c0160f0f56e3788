#include "atoll/text/decoder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/byte_level.h"
#include "atoll/text/regex/regex.h"

namespace atl::text {

namespace {

// Far above any real vocabulary; a higher id is damage, not a reason to allocate a huge table.
constexpr std::int32_t kMaxId = (1 << 24) - 1;

// Vocabularies have gaps, but the table must not be of another size than the file.
std::int32_t highest_id(const TokenizerSpec& spec) {
  constexpr std::size_t kGap = 65536;
  const std::size_t tokens = spec.model.vocab.size() + spec.added_tokens.size();
  return static_cast<std::int32_t>(std::min<std::size_t>(kMaxId, 4 * tokens + kGap));
}

// `text` with every `from` made `to`.
std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(from, at)) != std::string_view::npos;) {
    out.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  return out.append(text, at);
}

// What the library calls cleaning up.
std::string cleaned_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) text = replaced(text, from, to);
  return text;
}

std::string stripped(const std::string& text, const DecoderStep& step) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  const std::size_t size = step.content.size();
  for (int i = 0; i < step.start && text.compare(begin, size, step.content) == 0; ++i)
    begin += size;
  for (int i = 0; i < step.stop && end >= begin + size; ++i) {
    if (text.compare(end - size, size, step.content) != 0) break;
    end -= size;
  }
  return text.substr(begin, end - begin);
}

// DecoderStep, with its expression compiled.
class TokenSteps {
 public:
  TokenSteps(const std::vector<DecoderStep>& steps, std::string_view origin) {
    const std::string where = fmt::format("{}: decoder", origin);
    for (const DecoderStep& step : steps) {
      steps_.push_back({step, std::nullopt});
      if (step.kind == DecoderStep::Kind::kReplace && !step.literal) {
        steps_.back().regex.emplace(to_pcre2_syntax(step.pattern, where), where);
      }
    }
  }
  std::string run(std::string text, bool first) {
    for (const Step& step : steps_) text = run(step, text, first);
    return text;
  }

 private:
  struct Step {
    DecoderStep spec;
    std::optional<Regex> regex;
  };
  std::string run(const Step& step, const std::string& text, bool first) {
    using Kind = DecoderStep::Kind;
    const DecoderStep& spec = step.spec;
    if (spec.kind == Kind::kStrip) return stripped(text, spec);
    if (spec.kind == Kind::kMetaspace) {
      return replaced(text, spec.pattern, first && spec.first_removes ? "" : " ");
    }
    if (!step.regex) return replaced(text, spec.pattern, spec.content);
    std::string out;
    std::size_t at = 0;
    while (const auto match = matcher_.find(*step.regex, text, at)) {
      out.append(text, at, match->begin - at).append(spec.content);
      at = match->end;
    }
    return out.append(text, at);
  }

  std::vector<Step> steps_;
  RegexMatcher matcher_;
};

std::string token_text(std::string_view token, bool byte_level, const DecoderSpec& rules,
                       TokenSteps& steps, bool first = false) {
  if (rules.byte_fallback) {
    if (const auto byte = byte_of_token(token)) return std::string(1, static_cast<char>(*byte));
  }
  std::string text = steps.run(std::string(token), first);
  if (byte_level) return from_byte_level(text).value_or(text);
  if (!rules.pad.empty()) text = replaced(text, rules.pad, "");
  const std::string& prefix = rules.continuing_prefix;
  if (rules.spaces && !first) {
    if (!prefix.empty() && text.starts_with(prefix)) {
      text.erase(0, prefix.size());
    } else {
      text.insert(0, 1, ' ');
    }
  }
  if (!rules.cleanup) return text;
  text = cleaned_up(std::move(text));
  return rules.word_delimiter.empty() ? text : replaced(text, rules.word_delimiter, " ");
}

bool has_first_texts(const DecoderSpec& rules) {
  return rules.spaces || std::any_of(rules.steps.begin(), rules.steps.end(),
                                     [](const DecoderStep& step) { return step.first_removes; });
}

}  // namespace

Decoder::Decoder(const TokenizerSpec& spec, TokenIndex vocab, std::string_view origin)
    : rules_(spec.decoder), max_id_(highest_id(spec)), ids_(std::move(vocab)) {
  tokens_.reserve(spec.model.vocab.size() + spec.added_tokens.size());
  TokenSteps steps(rules_.steps, origin);
  for (const auto& [token, id] : spec.model.vocab) {
    put(token, id, token_text(token, spec.model.byte_level || rules_.byte_level, rules_, steps),
        origin);
  }
  for (const AddedToken& token : spec.added_tokens) {
    const auto known = ids_.find(token.content);
    if (!known) {
      add(token.content, token.id, token.content, origin);
    }
    tokens_[token.id].bytes = token_text(token.content, false, rules_, steps);
    tokens_[token.id].special = token.special;
  }
  if (rules_.byte_fallback) {
    ids_.for_each([&](std::string_view token, std::int32_t id) {
      tokens_[id].joins_run_of_bytes = byte_of_token(token).has_value();
    });
  }
  if (has_first_texts(rules_)) {
    ids_.for_each([&](std::string_view token, std::int32_t id) {
      std::string text = token_text(token, false, rules_, steps, true);
      if (text != tokens_[id].bytes) first_bytes_.emplace(id, std::move(text));
    });
  }
  if (!rules_.word_end.empty()) take_word_ends(origin);
}

// The last token of a text ends with nothing where others end with a space; so a space is written
// when the next token comes. Within a token that cannot be.
void Decoder::take_word_ends(std::string_view origin) {
  const std::string& end = rules_.word_end;
  for (Token& token : tokens_) {
    while (token.bytes.ends_with(end)) {
      token.bytes.erase(token.bytes.size() - end.size());
      ++token.spaces_after;
    }
    if (token.bytes.find(end) == std::string::npos) continue;
    throw user_error(
        "{}: decoder: BPEDecoder with the suffix \"{}\" is supported where tokens have it at their "
        "end, and it is within \"{}\"",
        origin, end, token.bytes);
  }
}

Decoder::Decoder(const SentencePieceSpec& spec, std::string_view origin) : max_id_(kMaxId) {
  // The space that encoding put there; where it removed spaces, none is left that a text had.
  if (spec.escape_whitespaces && (spec.add_dummy_prefix || spec.remove_extra_whitespaces)) {
    rules_.strip.assign(1, ' ');
    rules_.strip_count =
        spec.remove_extra_whitespaces ? std::numeric_limits<std::int32_t>::max() : 1;
  }
  using Type = SentencePieceSpec::Type;
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    const auto& [text, score, type] = spec.pieces[i];
    if (ids_.find(text)) {
      throw damaged_error("{}: pieces[{}]: \"{}\" is there twice", origin, i, text);
    }
    std::string bytes = replaced(text, kSpaceSymbol, " ");
    if (type == Type::kControl) bytes = text;
    if (type == Type::kUnknown) bytes = spec.unk_surface;
    if (type == Type::kByte) {
      bytes.assign(1, static_cast<char>(byte_of_token(text).value_or(0)));  // the parser checked
    }
    const auto id = static_cast<std::int32_t>(std::min<std::size_t>(i, kMaxId + 1));
    add(text, id, std::move(bytes), origin);
    tokens_[id].special = type == Type::kControl;
    tokens_[id].verbatim = type == Type::kControl || type == Type::kUnknown;
  }
}

void Decoder::add(std::string_view token, std::int32_t id, std::string bytes,
                  std::string_view origin) {
  put(token, id, std::move(bytes), origin);
  ids_.add(token, id);
}

void Decoder::put(std::string_view token, std::int32_t id, std::string bytes,
                  std::string_view origin) {
  if (id < 0 || id > max_id_) {
    throw damaged_error("{}: token \"{}\" has the id {}, outside 0 to {}", origin, token, id,
                        max_id_);
  }
  if (static_cast<std::size_t>(id) >= tokens_.size()) tokens_.resize(id + 1);
  if (tokens_[id].exists) {
    throw damaged_error("{}: tokens \"{}\" and another share the id {}", origin, token, id);
  }
  tokens_[id] = {.bytes = std::move(bytes), .exists = true};
}

std::string_view Decoder::bytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw user_error("token id {} is outside the vocabulary of {} tokens", id, vocab_size());
  }
  if (!tokens_[id].exists) throw user_error("token id {} is a gap in the vocabulary", id);
  return tokens_[id].bytes;
}

void Decoder::Text::append(std::int32_t id, std::string& out) {
  const std::string_view bytes = decoder_->bytes(id);
  if (decoder_->rules_.joins_repeats && std::exchange(last_, id) == id) return;
  out.append(static_cast<std::size_t>(std::exchange(spaces_, decoder_->tokens_[id].spaces_after)),
             ' ');
  const bool first = std::exchange(first_, false);
  if (first) {
    const auto found = decoder_->first_bytes_.find(id);
    if (found != decoder_->first_bytes_.end()) {
      out += found->second;
      return;
    }
  }
  if (decoder_->tokens_[id].verbatim) strip_left_ = 0;
  std::size_t stripped = 0;
  while (strip_left_ > 0 && bytes.substr(stripped, 1) == decoder_->rules_.strip) {
    ++stripped;
    --strip_left_;
  }
  if (stripped < bytes.size()) strip_left_ = 0;
  out += bytes.substr(stripped);
}

bool Decoder::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && tokens_[id].special;
}

std::optional<std::int32_t> Decoder::id_of(std::string_view token) const {
  return ids_.find(token);
}

}  // namespace atl::text
