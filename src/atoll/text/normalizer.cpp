#include "atoll/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "atoll/base/error.h"
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
    steps_.push_back({step, std::nullopt});
    if (step.kind != Kind::kReplace) continue;
    if (step.pattern.empty()) throw damaged_error("{}: Replace: the pattern is empty", where);
    if (!step.literal) steps_.back().regex.emplace(to_pcre2_syntax(step.pattern, where), where);
  }
}

std::string_view Normalizer::apply(std::string_view piece, RegexMatcher& matcher,
                                   std::string& buffer, TextStart start) const {
  using Kind = NormalizerStep::Kind;
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (only_forms_ && (steps_.empty() || std::all_of(piece.begin(), piece.end(), is_ascii))) {
    return piece;
  }
  for (const auto& [step, regex] : steps_) {
    std::string next;
    switch (step.kind) {
      case Kind::kForm:
        next = map_valid(
            piece, [&, form = step.form](auto t, auto& out) { append_normalized(t, form, out); });
        break;
      case Kind::kPrepend:
        if (piece.empty()) break;
        if (start != TextStart::kGoesOn) next.append(step.content);
        next.append(piece);
        break;
      case Kind::kReplace:
        if (step.literal) {
          append_replaced(piece, step.pattern, step.content, next);
        } else {
          next = map_valid(piece, [&, &step = step, &regex = regex](auto t, auto& out) {
            append_replaced(t, *regex, step.content, matcher, out);
          });
        }
        break;
      case Kind::kLowercase:
        next = map_valid(piece, [](auto t, auto& out) { append_lower(t, out); });
        break;
      case Kind::kStrip:
        next = strip(piece, step.left, step.right);
        break;
    }
    buffer = std::move(next);
    piece = buffer;
  }
  return piece;
}

}  // namespace atl::text
