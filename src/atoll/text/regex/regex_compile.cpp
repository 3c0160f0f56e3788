#include "atoll/text/regex/regex_compile.h"

#include "atoll/base/error.h"

namespace atl::text {

void FreePcre2Code::operator()(pcre2_code* code) const {
  pcre2_code_free(code);
}

Pcre2Code compile_pcre2(std::string_view pattern, std::uint32_t options, std::string_view where) {
  const auto free_context = [](pcre2_compile_context* c) { pcre2_compile_context_free(c); };
  const std::unique_ptr<pcre2_compile_context, decltype(free_context)> context(
      pcre2_compile_context_create(nullptr), free_context);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // what `.` does not match
  int error = 0;
  PCRE2_SIZE offset = 0;
  Pcre2Code code(pcre2_compile(as_code_units(pattern), pattern.size(),
                               PCRE2_UTF | PCRE2_UCP | options, &error, &offset, context.get()));
  if (code == nullptr) {
    throw user_error("{}: the regular expression is not valid: {} (at byte {} of {})", where,
                     pcre2_message(error), offset, pattern);
  }
  return code;
}

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace atl::text
