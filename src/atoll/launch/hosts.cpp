#include "atoll/launch/hosts.h"

#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <sstream>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/files/text_encoding.h"

namespace atl::launch {

namespace {

int parse_slots(const std::string& word, const std::string& where) {
  constexpr std::string_view kKey = "slots=";
  constexpr int kMost = 1024;
  int slots = 0;
  const char* const end = word.data() + word.size();
  if (word.starts_with(kKey)) {
    const auto [stopped, error] = std::from_chars(word.data() + kKey.size(), end, slots);
    if (error == std::errc() && stopped == end && slots >= 1 && slots <= kMost) return slots;
  }
  throw user_error("{}: '{}' stands where slots=N may (N from 1 to {})", where, word, kMost);
}

}  // namespace

// A name becomes an argument of ssh: it must not look like an option, nor hold anything odd.
bool is_host_name(const std::string& name) {
  return !name.empty() && std::isalnum(static_cast<unsigned char>(name.front())) != 0 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == '@' || c == ':';
         });
}

std::vector<Host> parse_hostfile(const std::string& text, const std::string& path) {
  std::vector<Host> hosts;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = fmt::format("{}:{}", path, ++number);
    std::istringstream words(line.substr(0, line.find('#')));
    Host host;
    if (!(words >> host.name)) continue;
    if (!is_host_name(host.name)) throw user_error("{}: '{}' is no host name", where, host.name);
    if (std::string word; words >> word) {
      host.slots = parse_slots(word, where);
      if (words >> word) throw user_error("{}: '{}' stands after the slots", where, word);
    }
    for (const Host& other : hosts) {
      if (other.name == host.name) {
        throw user_error("{}: {} is named twice; give all of its ranks in one slots=N", where,
                         host.name);
      }
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) throw user_error("{}: there is no host in it", path);
  return hosts;
}

std::vector<Host> read_hostfile(const std::filesystem::path& path) {
  return parse_hostfile(read_text_file(path), path.string());
}

std::string this_host() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

bool is_this_host(const std::string& name) {
  return name == "localhost" || name == "127.0.0.1" || name == "::1" || name == this_host();
}

void wait_for_host(const std::string& host, double timeout_s) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  for (;;) {
    addrinfo* found = nullptr;
    const int code = ::getaddrinfo(host.c_str(), nullptr, nullptr, &found);
    if (code == 0) return ::freeaddrinfo(found);
    if (Clock::now() >= deadline) {
      throw make_error(ErrorKind::kPeer,
                       "{}, where the ranks meet, is not known here after {} s: {}; see that the "
                       "first process has started, or give --rendezvous=tcp://HOST:PORT of it",
                       host, timeout_s, ::gai_strerror(code));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

}  // namespace atl::launch
