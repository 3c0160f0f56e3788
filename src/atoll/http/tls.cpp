#include "atoll/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl::http {

namespace {

// OpenSSL's own words for what went wrong last in this thread; forgets them.
std::string reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* words = code == 0 ? nullptr : ERR_reason_error_string(code);
  return words == nullptr ? "no reason given" : words;
}

}  // namespace

struct TlsContext::State {
  SSL_CTX* context = nullptr;
  ~State() { SSL_CTX_free(context); }
};

TlsContext::TlsContext(const std::filesystem::path& certificate, const std::filesystem::path& key)
    : state_(std::make_unique<State>()) {
  // What cannot be read is told with the system's reason.
  read_file(certificate);
  read_file(key);
  state_->context = SSL_CTX_new(TLS_server_method());
  ATOLL_CHECK(state_->context != nullptr, "{}", reason());
  SSL_CTX* context = state_->context;
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    throw user_error("{} holds no certificate in PEM ({})", certificate.string(), reason());
  }
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    throw user_error("{} does not hold the key of {} in PEM ({})", key.string(),
                     certificate.string(), reason());
  }
}

TlsContext::~TlsContext() = default;

struct TlsSession::State {
  SSL* ssl = nullptr;
  BIO* in = nullptr;   // of ssl
  BIO* out = nullptr;  // of ssl
  ~State() { SSL_free(ssl); }
};

TlsSession::TlsSession(const TlsContext& context) : state_(std::make_unique<State>()) {
  state_->ssl = SSL_new(context.state_->context);
  state_->in = BIO_new(BIO_s_mem());
  state_->out = BIO_new(BIO_s_mem());
  ATOLL_CHECK(state_->ssl != nullptr && state_->in != nullptr && state_->out != nullptr);
  SSL_set_bio(state_->ssl, state_->in, state_->out);
  SSL_set_accept_state(state_->ssl);
}

TlsSession::~TlsSession() {
  ERR_clear_error();
}

bool TlsSession::receive(std::string_view cipher, std::string& plain) {
  ERR_clear_error();
  if (!cipher.empty() && BIO_write(state_->in, cipher.data(), static_cast<int>(cipher.size())) !=
                             static_cast<int>(cipher.size())) {
    return false;
  }
  char buffer[16 << 10];
  for (;;) {
    const int count = SSL_read(state_->ssl, buffer, sizeof buffer);
    if (count > 0) {
      plain.append(buffer, static_cast<std::size_t>(count));
      continue;
    }
    return SSL_get_error(state_->ssl, count) == SSL_ERROR_WANT_READ;
  }
}

bool TlsSession::send(std::string_view plain) {
  ERR_clear_error();
  while (!plain.empty()) {
    constexpr std::size_t kMost = 1 << 20;
    const int count = static_cast<int>(std::min(plain.size(), kMost));
    if (SSL_write(state_->ssl, plain.data(), count) != count) return false;
    plain.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

bool TlsSession::is_ready() const {
  return SSL_is_init_finished(state_->ssl) == 1;
}

std::string TlsSession::take() {
  std::string bytes(BIO_ctrl_pending(state_->out), '\0');
  if (!bytes.empty()) BIO_read(state_->out, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

}  // namespace atl::http
