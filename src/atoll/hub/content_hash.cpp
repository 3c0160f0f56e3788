#include "atoll/hub/content_hash.h"

#include <openssl/evp.h>

#include <array>

#include "atoll/base/check.h"

namespace atl::hub {

struct ContentHash::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  Context() = default;
  ~Context() { EVP_MD_CTX_free(evp); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

ContentHash::ContentHash(const RepoFile& file)
    : context_(std::make_unique<Context>()), is_git_(file.sha256.empty()), size_(file.size) {
  reset();
}

ContentHash::~ContentHash() = default;

void ContentHash::reset() {
  num_bytes_ = 0;
  ATOLL_CHECK(EVP_DigestInit_ex(context_->evp, is_git_ ? EVP_sha1() : EVP_sha256(), nullptr) == 1);
  if (!is_git_) return;
  const std::string head = "blob " + std::to_string(size_);
  ATOLL_CHECK(EVP_DigestUpdate(context_->evp, head.c_str(), head.size() + 1) == 1);
}

void ContentHash::update(std::string_view bytes) {
  ATOLL_CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1);
  num_bytes_ += bytes.size();
}

std::string ContentHash::digest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  ATOLL_CHECK(EVP_DigestFinal_ex(context_->evp, bytes.data(), &size) == 1);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

}  // namespace atl::hub
