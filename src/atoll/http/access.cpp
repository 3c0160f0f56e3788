#include "atoll/http/access.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "atoll/base/check.h"

namespace atl::http {

namespace {

bool is_address(const std::string& host) {
  in_addr four;
  in6_addr six;
  return ::inet_pton(AF_INET, host.c_str(), &four) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &six) == 1;
}

// Without the port and the brackets of IPv6, in lower case; empty: there is none.
std::string name_in(std::string_view host) {
  std::string_view name = host;
  if (name.starts_with('[')) {
    const std::size_t end = name.find(']');
    if (end == name.npos) return "";
    name = name.substr(1, end - 1);
  } else {
    name = name.substr(0, name.find(':'));
  }
  std::string result(name);
  std::ranges::transform(result, result.begin(), [](unsigned char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : static_cast<char>(c);
  });
  return result;
}

}  // namespace

bool is_same_secret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string new_token() {
  std::array<unsigned char, 16> bytes{};
  ATOLL_CHECK_EQ(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())), 1);
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

bool is_known_host(const Request& request, const std::vector<std::string>& names) {
  const std::string* host = request.field("host");
  if (host == nullptr) return false;
  const std::string name = name_in(*host);
  return name == "localhost" || is_address(name) || std::ranges::find(names, name) != names.end();
}

bool is_own_origin(const Request& request) {
  const std::string* origin = request.field("origin");
  const std::string* host = request.field("host");
  if (origin == nullptr) return true;
  const std::size_t scheme = origin->find("://");
  return host != nullptr && scheme != origin->npos && origin->substr(scheme + 3) == *host;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && is_address(host));
}

}  // namespace atl::http
