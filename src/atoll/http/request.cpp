#include "atoll/http/request.h"

namespace atl::http {

namespace {

const std::string* find(const std::vector<std::pair<std::string, std::string>>& list,
                        std::string_view name) {
  for (const auto& [key, value] : list) {
    if (key == name) return &value;
  }
  return nullptr;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

const std::string* Request::field(std::string_view name) const {
  return find(fields, name);
}

const std::string* Request::parameter(std::string_view name) const {
  return find(parameters, name);
}

std::optional<std::string> Request::cookie(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key != "cookie") continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(';'), rest.size());
      std::string_view pair = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      while (pair.starts_with(' ')) pair.remove_prefix(1);
      const std::size_t equals = pair.find('=');
      if (equals != pair.npos && pair.substr(0, equals) == name) {
        return std::string(pair.substr(equals + 1));
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> unescape(std::string_view text, bool is_form) {
  std::string plain;
  plain.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && is_form) c = ' ';
    if (c == '%') {
      const int high = text.size() - i > 2 ? hex_digit(text[i + 1]) : -1;
      const int low = text.size() - i > 2 ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
      if (c == '\0') return std::nullopt;
    }
    plain.push_back(c);
  }
  return plain;
}

}  // namespace atl::http
