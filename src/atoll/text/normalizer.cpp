#include "atoll/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/byte_level.h"
#include "atoll/text/unicode_pins.h"
#include "atoll/text/utf8.h"

namespace atl::text {

namespace {

utf8proc_option_t options_of(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    case NormalForm::kNfd:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case NormalForm::kNfkc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case NormalForm::kNfkd:
      break;
  }
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
}

// Valid UTF-8 only, as utf8proc's Unicode has it.
void append_as_system(std::string_view valid, NormalForm form, std::string& out) {
  if (valid.empty()) return;
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                   static_cast<utf8proc_ssize_t>(valid.size()), &raw, options_of(form));
  const auto release = [](utf8proc_uint8_t* p) { std::free(p); };
  const std::unique_ptr<utf8proc_uint8_t, decltype(release)> mapped(raw, release);
  if (size < 0) {
    throw make_error(ErrorKind::kResource, "normalizing {} bytes of text failed: {}", valid.size(),
                     utf8proc_errmsg(size));
  }
  out.append(reinterpret_cast<const char*>(mapped.get()), static_cast<std::size_t>(size));
}

// Valid UTF-8 only. Nothing combines or moves across an inert character, so that what stands
// between two of them is normalized by itself.
void append_normalized(std::string_view valid, NormalForm form, std::string& out) {
  constexpr unsigned char kFirstLead = 0xD5;  // U+0540: no inert character is before
  std::size_t begin = 0;
  for (std::size_t at = 0; at < valid.size();) {
    const auto lead = static_cast<unsigned char>(valid[at]);
    const std::size_t size = lead < 0x80 ? 1 : utf8_step(valid.substr(at)).size;
    if (lead >= kFirstLead && is_inert(decode_utf8(valid.substr(at, size)))) {
      append_as_system(valid.substr(begin, at - begin), form, out);
      out.append(valid, at, size);
      begin = at + size;
    }
    at += size;
  }
  append_as_system(valid.substr(begin), form, out);
}

void append_lower(std::string_view valid, std::string& out) {
  while (!valid.empty()) {
    const std::size_t size = utf8_step(valid).size;
    const char32_t c = decode_utf8(valid.substr(0, size));
    // The one character whose lower case is two.
    if (c == 0x130) {
      out += "i\u0307";
    } else {
      append_utf8(lower_case(c), out);
    }
    valid.remove_prefix(size);
  }
}

void append_replaced(std::string_view valid, const Regex& regex, std::string_view content,
                     RegexMatcher& matcher, std::string& out) {
  std::size_t at = 0;
  while (const auto match = matcher.find(regex, valid, at)) {
    out.append(valid, at, match->begin - at).append(content);
    at = match->end;
  }
  out.append(valid, at);
}

void append_replaced(std::string_view text, std::string_view literal, std::string_view content,
                     std::string& out) {
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(literal, at)) != std::string_view::npos;) {
    out.append(text, at, found - at).append(content);
    at = found + literal.size();
  }
  out.append(text, at);
}

std::string_view strip(std::string_view text, bool left, bool right) {
  if (left) text.remove_prefix(leading_white_space(text));
  if (right) text = text.substr(0, trailing_white_space(text, 0));
  return text;
}

// `valid` with each character of a class made `make(character)`.
template <typename Make>
void append_changed(std::string_view valid, CharClass char_class, std::string& out, Make&& make) {
  while (!valid.empty()) {
    const std::string_view c = valid.substr(0, utf8_step(valid).size);
    if (is_of_class(decode_utf8(c), char_class)) {
      make(c);
    } else {
      out += c;
    }
    valid.remove_prefix(c.size());
  }
}

// The bytes of the character that a reader sees: a letter with its marks. (Unicode Standard Annex
// 29, extended grapheme clusters)
std::size_t grapheme_size(std::string_view valid) {
  std::size_t size = utf8_step(valid).size;
  utf8proc_int32_t state = 0;
  auto last = static_cast<utf8proc_int32_t>(decode_utf8(valid.substr(0, size)));
  while (size < valid.size()) {
    const std::size_t more = utf8_step(valid.substr(size)).size;
    const auto next = static_cast<utf8proc_int32_t>(decode_utf8(valid.substr(size, more)));
    if (utf8proc_grapheme_break_stateful(last, next, &state)) break;
    size += more;
    last = next;
  }
  return size;
}

// As the library has it: of a short grapheme the shortest rule stands for the whole of it.
void append_mapped(std::string_view valid, const CharsMap& map, std::string& out) {
  constexpr std::size_t kShort = 6;
  while (!valid.empty()) {
    std::string_view grapheme = valid.substr(0, grapheme_size(valid));
    valid.remove_prefix(grapheme.size());
    if (grapheme.size() < kShort) {
      if (const CharsMap::Rule rule = map.shortest(grapheme); rule.size > 0) {
        out += rule.replacement;
        continue;
      }
    }
    while (!grapheme.empty()) {
      const std::string_view c = grapheme.substr(0, utf8_step(grapheme).size);
      const CharsMap::Rule rule = map.shortest(c);
      out += rule.size > 0 ? rule.replacement : c;
      grapheme.remove_prefix(c.size());
    }
  }
}

template <typename AppendValid>
std::string map_valid(std::string_view text, AppendValid&& append) {
  std::string out;
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    append(text.substr(0, valid), out);
    text.remove_prefix(valid);
    const std::size_t invalid = invalid_utf8_prefix(text);
    out += text.substr(0, invalid);
    text.remove_prefix(invalid);
  }
  return out;
}

}  // namespace

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps, std::string_view origin) {
  using Kind = NormalizerStep::Kind;
  const std::string where = fmt::format("{}: normalizer", origin);
  for (const NormalizerStep& step : steps) {
    if (step.kind != Kind::kForm) only_forms_ = false;
    steps_.push_back({step, std::nullopt, std::nullopt});
    if (step.kind == Kind::kCharsMap) steps_.back().map.emplace(step.content, where);
    if (step.kind != Kind::kReplace) continue;
    if (step.pattern.empty()) throw damaged_error("{}: Replace: the pattern is empty", where);
    if (!step.literal) steps_.back().regex.emplace(to_pcre2_syntax(step.pattern, where), where);
  }
}

std::string_view Normalizer::apply(std::string_view piece, RegexMatcher& matcher,
                                   std::string& buffer, TextStart start) const {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (only_forms_ && (steps_.empty() || std::all_of(piece.begin(), piece.end(), is_ascii))) {
    return piece;
  }
  for (const Step& step : steps_) {
    buffer = run(step, piece, matcher, start);
    piece = buffer;
  }
  return piece;
}

std::string Normalizer::run(const Step& step, std::string_view piece, RegexMatcher& matcher,
                            TextStart start) {
  using Kind = NormalizerStep::Kind;
  const NormalizerStep& spec = step.spec;
  const auto change = [&](auto&& make) {
    return map_valid(piece, [&](auto t, auto& out) {
      append_changed(t, spec.char_class, out, [&](std::string_view c) { make(c, out); });
    });
  };
  switch (spec.kind) {
    case Kind::kForm:
      return map_valid(piece, [&](auto t, auto& out) { append_normalized(t, spec.form, out); });
    case Kind::kPrepend:
      if (piece.empty() || start == TextStart::kGoesOn) return std::string(piece);
      return std::string(spec.content).append(piece);
    case Kind::kReplace: {
      if (!spec.literal) {
        return map_valid(piece, [&](auto t, auto& out) {
          append_replaced(t, *step.regex, spec.content, matcher, out);
        });
      }
      std::string out;
      append_replaced(piece, spec.pattern, spec.content, out);
      return out;
    }
    case Kind::kLowercase:
      return map_valid(piece, [](auto t, auto& out) { append_lower(t, out); });
    case Kind::kStrip:
      return std::string(strip(piece, spec.left, spec.right));
    case Kind::kRemove:
      return change([](std::string_view, std::string&) {});
    case Kind::kSpace:
      return change([](std::string_view, std::string& out) { out += ' '; });
    case Kind::kSurround:
      return change([](std::string_view c, std::string& out) { (out += ' ').append(c) += ' '; });
    case Kind::kByteLevel:
      return to_byte_level(piece);
    case Kind::kCharsMap:
      return map_valid(piece, [&](auto t, auto& out) { append_mapped(t, *step.map, out); });
  }
  return std::string(piece);
}

}  // namespace atl::text
