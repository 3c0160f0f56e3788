#include "atoll/wire/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl::wire {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kSecretBytes = 32;  // as many as HMAC-SHA256 has
constexpr std::size_t kNonceBytes = 16;

std::string hex_of(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

template <std::size_t kBytes>
std::string random_hex() {
  std::array<unsigned char, kBytes> bytes;
  ATOLL_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1,
              "no random numbers for {} bytes", kBytes);
  return hex_of(bytes);
}

// As ssh does with keys: a file that other users may read or change is refused.
void check_private(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) {
      throw user_error(
          "there is no secret {}; give the file that the run's coordinator, server or tuner has "
          "made: DIRECTORY/coordinator/secret of `atoll train --islands`, elsewhere what its "
          "--secret, or study.secret, names",
          path.string());
    }
    throw io_error("cannot read", path, errno);
  }
  if (status.st_uid != ::geteuid()) {
    throw user_error("the secret {} belongs to another user ({}); only its owner may use it",
                     path.string(), status.st_uid);
  }
  if ((status.st_mode & 077) != 0) {
    throw user_error(
        "the secret {} may be read or changed by others (mode {:o}); if it is that of the run, "
        "delete it, and the next start of the run makes another one",
        path.string(), status.st_mode & 07777);
  }
}

}  // namespace

Secret::Secret(const fs::path& path) : path_(fs::absolute(path)) {
  check_private(path);
  value_ = read_file(path);
  while (!value_.empty() && value_.back() == '\n') value_.pop_back();
  const bool is_hex = value_.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (value_.size() == 2 * kSecretBytes && is_hex) return;
  throw user_error(
      "{} holds no secret ({} hexadecimal digits); give the file that the run's coordinator, "
      "server "
      "or tuner has made, or if it is that one, delete it: the next start of the run makes another",
      path.string(), 2 * kSecretBytes);
}

// Never replaces a file, which another process may already have given to its islands.
void Secret::make(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0 && errno == EEXIST) return;
  if (fd < 0) throw io_error("cannot write", path, errno);
  const std::string text = random_hex<kSecretBytes>() + "\n";
  const bool is_written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(fd) == 0;
  const int why = errno;
  ::close(fd);
  if (is_written) return;
  ::unlink(path.c_str());
  throw io_error("cannot write", path, why);
}

std::string Secret::proof(std::string_view side, int port, std::string_view nonce) const {
  const std::string text = fmt::format("atoll-wire {} {} {}", side, port, nonce);
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac;
  unsigned size = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), value_.data(), static_cast<int>(value_.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &size);
  ATOLL_CHECK(done != nullptr, "no HMAC-SHA256");
  return hex_of(std::span(mac.data(), size));
}

std::optional<Secret> secret_beside(const std::optional<fs::path>& secret,
                                    const std::optional<fs::path>& identity) {
  if (!secret) return std::nullopt;
  if (identity) {
    throw user_error(
        "a secret ({}) is for processes without certificates, and an identity is given too ({}); "
        "remove one of them",
        secret->string(), identity->string());
  }
  return Secret(*secret);
}

std::string make_nonce() {
  return random_hex<kNonceBytes>();
}

bool is_same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace atl::wire
