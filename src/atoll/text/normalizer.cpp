#include "atoll/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "atoll/base/error.h"
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

// Valid UTF-8 only.
void append_normalized(std::string_view valid, NormalForm form, std::string& out) {
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

std::string normalize(std::string_view text, NormalForm form) {
  std::string out;
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    append_normalized(text.substr(0, valid), form, out);
    text.remove_prefix(valid);
    const std::size_t invalid = invalid_utf8_prefix(text);
    out += text.substr(0, invalid);
    text.remove_prefix(invalid);
  }
  return out;
}

}  // namespace

std::string_view Normalizer::apply(std::string_view piece, std::string& buffer) const {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (forms_.empty() || std::all_of(piece.begin(), piece.end(), is_ascii)) return piece;
  for (const NormalForm form : forms_) {
    buffer = normalize(piece, form);
    piece = buffer;
  }
  return piece;
}

}  // namespace atl::text
