#include "atoll/serve/task_extract.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::serve {

namespace {

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

PCRE2_SPTR as_code_units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

void AnswerPattern::FreeCode::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

AnswerPattern::AnswerPattern(const std::string& pattern, std::string_view where) : where_(where) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  // text::Regex is for cutting text into words: it has no groups and refuses empty matches.
  code_.reset(pcre2_compile(as_code_units(pattern), pattern.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                            nullptr));
  if (code_ == nullptr) {
    throw user_error("{}: the regular expression is not valid: {} (at byte {} of {})", where,
                     message_of(error), offset, pattern);
  }
  std::uint32_t groups = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_CAPTURECOUNT, &groups);
  has_group_ = groups > 0;
}

std::optional<std::string_view> AnswerPattern::find(std::string_view text) const {
  const auto free_data = [](pcre2_match_data* data) { pcre2_match_data_free(data); };
  const std::unique_ptr<pcre2_match_data, decltype(free_data)> data(
      pcre2_match_data_create_from_pattern(code_.get(), nullptr), free_data);
  if (data == nullptr) {
    throw make_error(ErrorKind::kResource, "out of memory for regular expression matching");
  }
  const int result =
      pcre2_match(code_.get(), as_code_units(text), text.size(), 0, 0, data.get(), nullptr);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw user_error("{}: matching gave up on a text of {} bytes: {}; simplify the expression",
                     where_, text.size(), message_of(result));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get()) + (has_group_ ? 2 : 0);
  // \K inside a look-ahead can let a match begin behind its end.
  if (bounds[0] == PCRE2_UNSET || bounds[0] > bounds[1]) return std::nullopt;
  return text.substr(bounds[0], bounds[1] - bounds[0]);
}

std::optional<std::string_view> comparable(std::string_view text, const AnswerPattern* pattern) {
  if (pattern != nullptr) {
    const auto found = pattern->find(text);
    if (!found) return std::nullopt;
    text = *found;
  }
  const std::size_t begin = text::leading_white_space(text);
  return text.substr(begin, text::trailing_white_space(text, begin) - begin);
}

}  // namespace atl::serve
