#include "atoll/wire/probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/wire/address.h"
#include "atoll/wire/tls.h"
#include "atoll/wire/x509.h"

namespace atl::wire {

namespace {

using Clock = std::chrono::steady_clock;

struct SslFree {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool wait_for(int fd, short events, Clock::time_point end) {
  pollfd entry{fd, events, 0};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  return left.count() > 0 && ::poll(&entry, 1, static_cast<int>(left.count())) == 1;
}

// "" or why not.
std::string connect(int fd, const SocketAddress& address, Clock::time_point end) {
  if (fd < 0) return std::strerror(errno);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) {
    return "";
  }
  if (errno != EINPROGRESS) return std::strerror(errno);
  if (!wait_for(fd, POLLOUT, end)) return "no answer";
  int reason = 0;
  socklen_t size = sizeof reason;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &size);
  return reason == 0 ? "" : std::strerror(reason);
}

// Bytes that a client of HTTP/2 begins with, and what the server says to them. A server of gRPC
// answers with settings; one that speaks TLS with an alert, or by hanging up.
ProbeResult probe_plaintext(int fd, const std::string& address, Clock::time_point end) {
  constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
  if (::send(fd, kPreface, sizeof kPreface - 1, MSG_NOSIGNAL) < 0) return {};
  unsigned char first = 0;
  if (!wait_for(fd, POLLIN, end)) {
    return {fmt::format("{} takes connections but does not answer", address), false};
  }
  const ssize_t got = ::recv(fd, &first, 1, 0);
  constexpr unsigned char kAlert = 0x15;
  if (got == 1 && first != kAlert) return {};
  if (got == 1) {
    return {fmt::format("{} speaks TLS, and this side has no identity; give it one", address),
            true};
  }
  // gRPC's TLS hangs up without an alert; a server that is going away hangs up too.
  return {fmt::format("{} hangs up on plaintext; if it speaks TLS, give this side an identity",
                      address),
          false};
}

// One step of OpenSSL's, repeated until it is done (> 0), failed or out of time.
template <typename Step>
int repeat(SSL* ssl, int fd, Clock::time_point end, const Step& step) {
  for (;;) {
    ERR_clear_error();
    const int result = step();
    const int error = SSL_get_error(ssl, result);
    const bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    if (result > 0 || !waits) return result;
    if (!wait_for(fd, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, end)) return result;
  }
}

// What the other side's alert about our certificate means.
std::string alert_text(int reason) {
  switch (reason) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return "does not know the authority of our certificate; both must come from one authority";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return "says that our certificate has expired, by its clock; compare the clocks";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
      return "says that our certificate was revoked";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return "wants a certificate and got none";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
      return "refuses our certificate";
    default:
      return "";
  }
}

ProbeResult handshake_problem(SSL* ssl, const std::string& address, const std::string& name) {
  const long verified = SSL_get_verify_result(ssl);
  const unsigned long code = ERR_peek_error();
  const int reason = ERR_GET_REASON(code);
  if (verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH) {
    return {fmt::format("the certificate of {} is not for {}; issue it with --host {}, or call it "
                        "by one of its names",
                        address, name, name),
            true};
  }
  if (verified != X509_V_OK) {
    return {fmt::format("the certificate of {} is not good: {}", address,
                        X509_verify_cert_error_string(verified)),
            true};
  }
  const std::string alert = alert_text(reason);
  if (!alert.empty()) return {fmt::format("{} {}", address, alert), true};
  if (reason == SSL_R_WRONG_VERSION_NUMBER) {
    return {fmt::format("{} does not speak TLS, and this side has an identity", address), true};
  }
  if (reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION || reason == SSL_R_UNSUPPORTED_PROTOCOL) {
    return {fmt::format("{} does not speak TLS 1.3", address), true};
  }
  if (code == 0) return {fmt::format("{} hangs up in the TLS handshake", address), false};
  return {fmt::format("TLS with {} fails: {}", address, openssl_reason()), false};
}

bool prepare(SSL_CTX* context, const Identity& identity) {
  const CertificatePtr authority = parse_certificate(identity.authority_pem, "ca.pem");
  const CertificatePtr certificate = parse_certificate(identity.certificate_pem, "cert.pem");
  const KeyPtr key = parse_key(identity.key_pem, "key.pem");
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
         X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) == 1 &&
         SSL_CTX_use_certificate(context, certificate.get()) == 1 &&
         SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

bool expect_name(SSL* ssl, const std::string& name) {
  unsigned char bytes[sizeof(in6_addr)];
  const bool is_address =
      inet_pton(AF_INET, name.c_str(), bytes) == 1 || inet_pton(AF_INET6, name.c_str(), bytes) == 1;
  if (is_address) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name.c_str()) == 1;
  return SSL_set1_host(ssl, name.c_str()) == 1 && SSL_set_tlsext_host_name(ssl, name.c_str()) == 1;
}

ProbeResult probe_tls(int fd, const std::string& address, const Identity& identity,
                      const std::string& name, Clock::time_point end) {
  const std::unique_ptr<SSL_CTX, SslFree> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr || !prepare(context.get(), identity)) return {openssl_reason(), false};
  const std::unique_ptr<SSL, SslFree> owner(SSL_new(context.get()));
  SSL* ssl = owner.get();
  constexpr unsigned char kProtocols[] = "\2h2";
  if (ssl == nullptr || SSL_set_fd(ssl, fd) != 1 || !expect_name(ssl, name) ||
      SSL_set_alpn_protos(ssl, kProtocols, sizeof kProtocols - 1) != 0) {
    return {openssl_reason(), false};
  }
  if (repeat(ssl, fd, end, [&] { return SSL_connect(ssl); }) <= 0) {
    return handshake_problem(ssl, address, name);
  }
  // In TLS 1.3 the server looks at our certificate after our side is done. Then comes an alert, or
  // the first byte of HTTP/2.
  char first = 0;
  const int got = repeat(ssl, fd, end, [&] { return SSL_read(ssl, &first, 1); });
  if (got > 0) return {};
  const int error = SSL_get_error(ssl, got);
  if (error == SSL_ERROR_WANT_READ) {
    return {fmt::format("{} takes connections but does not answer", address), false};
  }
  return handshake_problem(ssl, address, name);
}

}  // namespace

ProbeResult probe(const std::string& address, const std::optional<Identity>& identity,
                  const std::string& server_name, int timeout_ms) {
  prepare_libraries();
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  const HostPort where = parse_address(address, "the address to connect to");
  std::string why;
  const std::vector<SocketAddress> all = resolve(where, &why);
  if (all.empty()) return {fmt::format("cannot look up {}: {}", where.host, why), false};
  for (const SocketAddress& one : all) {
    const Socket socket(
        ::socket(one.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    why = connect(socket.fd(), one, end);
    if (!why.empty()) continue;
    if (!identity) return probe_plaintext(socket.fd(), address, end);
    const std::string& name = server_name.empty() ? where.host : server_name;
    return probe_tls(socket.fd(), address, *identity, name, end);
  }
  return {fmt::format("cannot connect to {}: {}", address, why), false};
}

}  // namespace atl::wire
