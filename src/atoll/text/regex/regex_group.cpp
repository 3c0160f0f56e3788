#include "atoll/text/regex/regex_group.h"

#include "atoll/base/error.h"
#include "atoll/text/regex/regex_compile.h"

namespace atl::text {

struct RegexGroup::Compiled {
  Pcre2Code code;
  std::string where;
  bool has_group = false;
};

RegexGroup::RegexGroup(const std::string& pattern, std::string_view where) {
  Pcre2Code code = compile_pcre2(pattern, PCRE2_NEVER_BACKSLASH_C, where);
  std::uint32_t groups = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_CAPTURECOUNT, &groups);
  compiled_ =
      std::make_unique<const Compiled>(Compiled{std::move(code), std::string(where), groups > 0});
}

RegexGroup::~RegexGroup() = default;
RegexGroup::RegexGroup(RegexGroup&&) noexcept = default;
RegexGroup& RegexGroup::operator=(RegexGroup&&) noexcept = default;

std::optional<std::string_view> RegexGroup::find(std::string_view text) const {
  const pcre2_code* code = compiled_->code.get();
  const auto free_data = [](pcre2_match_data* data) { pcre2_match_data_free(data); };
  const std::unique_ptr<pcre2_match_data, decltype(free_data)> data(
      pcre2_match_data_create_from_pattern(code, nullptr), free_data);
  if (data == nullptr) {
    throw make_error(ErrorKind::kResource, "out of memory for regular expression matching");
  }
  const int result = pcre2_match(code, as_code_units(text), text.size(), 0, 0, data.get(), nullptr);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw user_error("{}: matching gave up on a text of {} bytes: {}; simplify the expression",
                     compiled_->where, text.size(), pcre2_message(result));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get()) + (compiled_->has_group ? 2 : 0);
  // \K inside a look-ahead can let a match begin behind its end.
  if (bounds[0] == PCRE2_UNSET || bounds[0] > bounds[1]) return std::nullopt;
  return text.substr(bounds[0], bounds[1] - bounds[0]);
}

}  // namespace atl::text
