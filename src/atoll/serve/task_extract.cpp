#include "atoll/serve/task_extract.h"

#include "atoll/text/utf8.h"

namespace atl::serve {

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
