#include "atoll/text/unicode_scripts.h"

#include <algorithm>
#include <iterator>

#include "atoll/text/utf8.h"

namespace atl::text {

namespace {

struct ScriptRange {
  char32_t first;
  char32_t last;
  int script;
};

#include "atoll/text/unicode_scripts.inc"

}  // namespace

std::optional<int> script_of(char32_t code_point) {
  const auto* range =
      std::lower_bound(std::begin(kScriptRanges), std::end(kScriptRanges), code_point,
                       [](const ScriptRange& r, char32_t c) { return r.last < c; });
  if (range == std::end(kScriptRanges) || range->first > code_point) return std::nullopt;
  return range->script;
}

std::vector<std::size_t> script_starts(std::string_view text) {
  std::vector<std::size_t> starts;
  std::optional<int> last;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = utf8_step(text.substr(at)).size;
    const std::optional<int> script = script_of(decode_utf8(text.substr(at, size)));
    if (script && script != last) {
      starts.push_back(at);
      last = script;
    }
    at += size;
  }
  return starts;
}

}  // namespace atl::text
