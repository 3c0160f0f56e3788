#define PCRE2_CODE_UNIT_WIDTH 8
#include "atoll/rl/pattern.h"

#include <pcre2.h>

#include "atoll/base/error.h"

namespace atl::rl {

namespace {

// Far more steps than an answer of a few thousand tokens needs, and less than a second.
constexpr std::uint32_t kMostSteps = 1'000'000;

struct FreeData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using MatchData = std::unique_ptr<pcre2_match_data, FreeData>;

PCRE2_SPTR units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());  // NOLINT: PCRE2's type of bytes
}

// Null where nothing matches from `start` on.
MatchData find(const pcre2_code* code, std::string_view text, std::size_t start) {
  MatchData data(pcre2_match_data_create_from_pattern(code, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(
      pcre2_match_context_create(nullptr));
  if (data == nullptr || context == nullptr) {
    throw make_error(ErrorKind::kResource, "out of memory for regular expression matching");
  }
  pcre2_set_match_limit(context.get(), kMostSteps);
  const int result =
      pcre2_match(code, units(text), text.size(), start, 0, data.get(), context.get());
  return result > 0 ? std::move(data) : nullptr;
}

}  // namespace

void Pattern::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

Pattern::Pattern(const std::string& source, std::string_view key) {
  int error = 0;
  PCRE2_SIZE at = 0;
  code_.reset(
      pcre2_compile(units(source), source.size(), PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr));
  if (code_ != nullptr) return;
  PCRE2_UCHAR message[256] = {};
  pcre2_get_error_message(error, message, sizeof(message));
  throw user_error("{}: {} at byte {} of {}", key,
                   reinterpret_cast<const char*>(message),  // NOLINT: PCRE2's type of bytes
                   at, source);
}

bool Pattern::matches(std::string_view text) const {
  return find(code_.get(), text, 0) != nullptr;
}

std::optional<std::string> Pattern::last_match(std::string_view text) const {
  std::optional<std::string> last;
  for (std::size_t start = 0; start <= text.size();) {
    const MatchData data = find(code_.get(), text, start);
    if (data == nullptr) break;
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    const bool has_group = pcre2_get_ovector_count(data.get()) > 1;
    const PCRE2_SIZE* wanted = has_group ? bounds + 2 : bounds;
    if (wanted[0] != PCRE2_UNSET) last = text.substr(wanted[0], wanted[1] - wanted[0]);
    // Behind an empty match goes on with the next character.
    start = bounds[1] > start ? bounds[1] : start + 1;
    while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) ++start;
  }
  return last;
}

}  // namespace atl::rl
