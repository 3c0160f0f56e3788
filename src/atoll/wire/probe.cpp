#include "atoll/wire/probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

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

// When the probe ends, and how it is cancelled.
struct Deadline {
  Clock::time_point end;
  std::stop_token cancel;
};

bool wait_for(int fd, short events, const Deadline& deadline) {
  constexpr std::chrono::milliseconds kLook{20};  // at `cancel`, each time
  while (!deadline.cancel.stop_requested()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline.end - Clock::now());
    if (left.count() <= 0) return false;
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min(left, kLook).count()));
    if (ready != 0) return ready == 1;
  }
  return false;
}

// Why it cannot connect: one line; "": it is connected.
std::string connect(int fd, const SocketAddress& address, const Deadline& deadline) {
  if (fd < 0) return std::strerror(errno);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) {
    return "";
  }
  if (errno != EINPROGRESS) return std::strerror(errno);
  if (!wait_for(fd, POLLOUT, deadline)) return "no answer";
  int reason = 0;
  socklen_t size = sizeof reason;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &size);
  return reason == 0 ? "" : std::strerror(reason);
}

enum class Verdict { kGood, kHungUp, kSilent, kOther };

// What the server says to the first bytes of HTTP/2. gRPC answers with settings; where it expects
// TLS it hangs up without a word.
Verdict greet_in_plaintext(int fd, const Deadline& deadline) {
  constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
  if (::send(fd, kPreface, sizeof kPreface - 1, MSG_NOSIGNAL) < 0) return Verdict::kHungUp;
  unsigned char first = 0;
  constexpr unsigned char kAlert = 0x15;
  if (!wait_for(fd, POLLIN, deadline)) return Verdict::kSilent;
  return ::recv(fd, &first, 1, 0) == 1 && first != kAlert ? Verdict::kGood : Verdict::kHungUp;
}

// Repeats one step of OpenSSL until it is done (> 0), has failed, or the deadline has come.
template <typename Step>
int repeat(SSL* ssl, int fd, const Deadline& deadline, const Step& step) {
  for (;;) {
    ERR_clear_error();
    const int result = step();
    const int error = SSL_get_error(ssl, result);
    const bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    if (result > 0 || !waits) return result;
    if (!wait_for(fd, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline)) return result;
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
  if (reason == SSL_R_WRONG_VERSION_NUMBER) {
    return {fmt::format("{} does not speak TLS, and this side has an identity", address), true};
  }
  if (reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION || reason == SSL_R_UNSUPPORTED_PROTOCOL) {
    return {fmt::format("{} does not speak TLS 1.3", address), true};
  }
  if (code == 0) return {fmt::format("{} hangs up in the TLS handshake", address), false};
  return {fmt::format("TLS with {} fails: {}", address, openssl_reason()), false};
}

struct Tls {
  std::unique_ptr<SSL_CTX, SslFree> context;
  std::unique_ptr<SSL, SslFree> ssl;
};

// A client of TLS 1.3 and HTTP/2 at `fd`; null when OpenSSL cannot make one.
Tls make_client(int fd) {
  Tls tls;
  tls.context.reset(SSL_CTX_new(TLS_client_method()));
  if (tls.context == nullptr ||
      SSL_CTX_set_min_proto_version(tls.context.get(), TLS1_3_VERSION) != 1) {
    return {};
  }
  tls.ssl.reset(SSL_new(tls.context.get()));
  constexpr unsigned char kProtocols[] = "\2h2";
  if (tls.ssl == nullptr || SSL_set_fd(tls.ssl.get(), fd) != 1 ||
      SSL_set_alpn_protos(tls.ssl.get(), kProtocols, sizeof kProtocols - 1) != 0) {
    return {};
  }
  return tls;
}

bool use_identity(const Tls& tls, const Identity& identity, const std::string& server_name) {
  const CertificatePtr authority = parse_certificate(identity.authority_pem, "ca.pem");
  const CertificatePtr certificate = parse_certificate(identity.certificate_pem, "cert.pem");
  const KeyPtr key = parse_key(identity.key_pem, "key.pem");
  SSL* ssl = tls.ssl.get();
  SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
  unsigned char bytes[sizeof(in6_addr)];
  const bool is_address = inet_pton(AF_INET, server_name.c_str(), bytes) == 1 ||
                          inet_pton(AF_INET6, server_name.c_str(), bytes) == 1;
  const int named = is_address
                        ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), server_name.c_str())
                        : SSL_set1_host(ssl, server_name.c_str()) &
                              static_cast<int>(SSL_set_tlsext_host_name(ssl, server_name.c_str()));
  return named == 1 &&
         X509_STORE_add_cert(SSL_CTX_get_cert_store(tls.context.get()), authority.get()) == 1 &&
         SSL_use_certificate(ssl, certificate.get()) == 1 &&
         SSL_use_PrivateKey(ssl, key.get()) == 1;
}

// A connection, or why there is none.
struct Connection {
  std::unique_ptr<Socket> socket;
  std::string why;
};

Connection connect_any(const HostPort& address, const Deadline& deadline) {
  Connection made;
  const std::vector<SocketAddress> all = resolve(address, &made.why);
  if (all.empty()) {
    made.why = fmt::format("cannot look up {}: {}", address.host, made.why);
    return made;
  }
  for (const SocketAddress& one : all) {
    made.socket = std::make_unique<Socket>(
        ::socket(one.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    made.why = connect(made.socket->fd(), one, deadline);
    if (made.why.empty()) return made;
  }
  made.why = fmt::format("cannot connect to {}: {}", to_string(address), made.why);
  return made;
}

std::string silence(const HostPort& address) {
  return fmt::format("{} takes connections but does not answer", to_string(address));
}

ProbeResult probe_plaintext(const HostPort& address, const Deadline& deadline) {
  Connection made = connect_any(address, deadline);
  if (!made.why.empty()) return {made.why, false};
  const Verdict verdict = greet_in_plaintext(made.socket->fd(), deadline);
  if (verdict == Verdict::kGood) return {};
  if (verdict == Verdict::kSilent) return {silence(address), false};
  made = connect_any(address, deadline);
  if (!made.why.empty()) return {made.why, false};
  const int fd = made.socket->fd();
  const Tls tls = make_client(fd);
  if (tls.ssl == nullptr ||
      repeat(tls.ssl.get(), fd, deadline, [&] { return SSL_connect(tls.ssl.get()); }) <= 0) {
    openssl_reason();
    return {fmt::format("{} hangs up", to_string(address)), false};
  }
  return {fmt::format("{} speaks TLS, and this side has no identity; give it one of the same "
                      "authority",
                      to_string(address)),
          true};
}

// One handshake, and the wait for the server's first byte: in TLS 1.3 it looks at our certificate
// after our side is done.
Verdict shake_hands(const HostPort& address, const Identity& identity, const std::string& name,
                    const Deadline& deadline, ProbeResult& result) {
  const Connection made = connect_any(address, deadline);
  result = {made.why, false};
  if (!made.why.empty()) return Verdict::kOther;
  const int fd = made.socket->fd();
  const Tls tls = make_client(fd);
  if (tls.ssl == nullptr || !use_identity(tls, identity, name)) {
    result.why = openssl_reason();
    return Verdict::kOther;
  }
  SSL* ssl = tls.ssl.get();
  const std::string text = to_string(address);
  const int connected = repeat(ssl, fd, deadline, [&] { return SSL_connect(ssl); });
  if (connected <= 0 && SSL_get_error(ssl, connected) == SSL_ERROR_WANT_READ) {
    result.why = silence(address);
    return Verdict::kOther;
  }
  if (connected <= 0) {
    result = handshake_problem(ssl, text, name);
    return Verdict::kOther;
  }
  char first = 0;
  const int got = repeat(ssl, fd, deadline, [&] { return SSL_read(ssl, &first, 1); });
  if (got > 0) return Verdict::kGood;
  if (SSL_get_error(ssl, got) == SSL_ERROR_WANT_READ) {
    result.why = silence(address);
    return Verdict::kOther;
  }
  result = handshake_problem(ssl, text, name);
  return result.is_final ? Verdict::kOther : Verdict::kHungUp;
}

ProbeResult probe_tls(const HostPort& address, const Identity& identity, const std::string& name,
                      const Deadline& deadline) {
  ProbeResult result;
  // gRPC sends no alert when it refuses a certificate. A server that hangs up once may be shutting
  // down; a server that hangs up twice is running and refuses the certificate.
  for (int i = 0; i < 2; ++i) {
    const Verdict verdict = shake_hands(address, identity, name, deadline, result);
    if (verdict == Verdict::kGood) return {};
    if (verdict == Verdict::kOther) return result;
  }
  return {fmt::format("{} refuses the certificate of {}: it is of another authority or has expired "
                      "by that machine's clock; the log there says which",
                      to_string(address), identity.name),
          true};
}

}  // namespace

ProbeResult probe(const std::string& address, const std::optional<Identity>& identity,
                  const std::string& server_name, int timeout_ms, std::stop_token cancel) {
  prepare_libraries();
  const Deadline deadline = {Clock::now() + std::chrono::milliseconds(timeout_ms),
                             std::move(cancel)};
  const HostPort where = parse_address(address, "the address to connect to");
  if (!identity) return probe_plaintext(where, deadline);
  return probe_tls(where, *identity, server_name.empty() ? where.host : server_name, deadline);
}

}  // namespace atl::wire
