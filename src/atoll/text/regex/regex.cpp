#include "atoll/text/regex/regex.h"

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/text/regex/regex_compile.h"

namespace atl::text {

namespace {

// The machine stack's 32 KiB suffices for the usual patterns; one with nested groups on a long run
// of text may need more.
constexpr std::size_t kJitStackStart = 32 << 10;
constexpr std::size_t kJitStackMax = 16 << 20;

}  // namespace

Regex::Regex(const std::string& pcre2_pattern, std::string_view where)
    : code_(compile_pcre2(pcre2_pattern, PCRE2_NO_AUTO_CAPTURE, where)), where_(where) {
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    throw user_error(
        "{}: the regular expression matches the empty string, so it splits nothing: {}", where,
        pcre2_pattern);
  }
  jit_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
}

void RegexMatcher::Free::operator()(pcre2_real_match_data_8* data) const {
  pcre2_match_data_free(data);
}
void RegexMatcher::Free::operator()(pcre2_real_match_context_8* context) const {
  pcre2_match_context_free(context);
}
void RegexMatcher::Free::operator()(pcre2_real_jit_stack_8* stack) const {
  pcre2_jit_stack_free(stack);
}

RegexMatcher::RegexMatcher()
    : data_(pcre2_match_data_create(1, nullptr)), context_(pcre2_match_context_create(nullptr)) {
  if (data_ == nullptr || context_ == nullptr) {
    throw make_error(ErrorKind::kResource, "out of memory for regular expression matching");
  }
}

std::optional<RegexMatcher::Match> RegexMatcher::find(const Regex& regex, std::string_view subject,
                                                      std::size_t start) {
  const auto run = [&] {
    // pcre2_jit_match skips the checks of pcre2_match, which cost more than a short match.
    return regex.jit_ ? pcre2_jit_match(regex.code_.get(), as_code_units(subject), subject.size(),
                                        start, PCRE2_NO_UTF_CHECK, data_.get(), context_.get())
                      : pcre2_match(regex.code_.get(), as_code_units(subject), subject.size(),
                                    start, PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
  };
  int result = run();
  if (result == PCRE2_ERROR_JIT_STACKLIMIT && stack_ == nullptr) {
    stack_.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr));
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    result = run();
  }
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw user_error(
        "{}: matching gave up at byte {} of a text of {} bytes: {}; cut the text into shorter "
        "documents, or simplify the regular expression",
        regex.where_, start, subject.size(), pcre2_message(result));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
  ATOLL_CHECK(bounds[0] < bounds[1], "an empty match at byte {}", start);
  return Match{bounds[0], bounds[1]};
}

}  // namespace atl::text
