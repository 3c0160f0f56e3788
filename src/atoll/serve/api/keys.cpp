#include "atoll/serve/api/keys.h"

#include <algorithm>
#include <cctype>

#include "atoll/base/error.h"
#include "atoll/http/access.h"

namespace atl::serve::api {

namespace {

bool is_key(std::string_view word) {
  constexpr std::size_t kShortest = 16;
  return word.size() >= kShortest && std::all_of(word.begin(), word.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

std::string_view without_space(std::string_view line) {
  constexpr const char* kWhiteSpace = " \t\r";
  const std::size_t begin = line.find_first_not_of(kWhiteSpace);
  if (begin == line.npos) return "";
  return line.substr(begin, line.find_last_not_of(kWhiteSpace) + 1 - begin);
}

}  // namespace

KeyList KeyList::parse(std::string_view content, const std::string& origin) {
  KeyList list;
  int number = 0;
  while (!content.empty()) {
    ++number;
    const std::size_t end = std::min(content.find('\n'), content.size());
    const std::string_view line = without_space(content.substr(0, end));
    content.remove_prefix(std::min(end + 1, content.size()));
    if (line.empty() || line.front() == '#') continue;
    if (!is_key(line)) {
      throw user_error(
          "{}, line {}: no key, which is one word of at least 16 letters, digits, '-', '_' and "
          "'.'; `openssl rand -hex 16` makes one",
          origin, number);
    }
    list.keys_.emplace_back(line);
  }
  if (list.keys_.empty()) throw user_error("{}: there is no key in it; write one a line", origin);
  return list;
}

std::optional<std::string> KeyList::asker(const http::Request& request) const {
  if (keys_.empty()) return "";
  constexpr std::string_view kBearer = "Bearer ";
  const std::string* field = request.field("authorization");
  if (field == nullptr || !field->starts_with(kBearer)) return std::nullopt;
  const std::string_view shown = std::string_view(*field).substr(kBearer.size());
  std::optional<std::string> found;
  for (std::size_t i = 0; i < keys_.size(); ++i) {  // all of them: time tells not which
    if (http::is_same_secret(shown, keys_[i])) found = "key " + std::to_string(i);
  }
  return found;
}

}  // namespace atl::serve::api
