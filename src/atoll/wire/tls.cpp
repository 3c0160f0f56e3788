#include "atoll/wire/tls.h"

#include <absl/base/internal/sysinfo.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <openssl/bio.h>
#include <openssl/conf.h>
#include <openssl/ssl.h>

#include <map>
#include <mutex>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/base/log.h"
#include "atoll/wire/x509.h"

namespace atl::wire {

namespace {

// gRPC 1.51 asks OpenSSL for TLS 1.2 or newer and has no public way to ask for more; the options
// that OpenSSL gives every new context come before that and stay. Changing them by a file would
// leave it to the machine, and GRPC_SSL_CIPHER_SUITES does not go without a cipher of TLS 1.2.
constexpr std::string_view kOnlyTls13 =
    "openssl_conf = atoll\n"
    "[atoll]\n"
    "ssl_conf = ssl\n"
    "[ssl]\n"
    "system_default = tls\n"
    "[tls]\n"
    "CipherString = DEFAULT@SECLEVEL=2\n"
    "Protocol = -ALL, TLSv1.3\n";

void allow_only_tls13() {
  // First the machine's own configuration, which would else come later and undo this.
  ATOLL_CHECK(OPENSSL_init_ssl(OPENSSL_INIT_LOAD_CONFIG, nullptr) == 1, "{}", openssl_reason());
  BIO* text = BIO_new_mem_buf(kOnlyTls13.data(), static_cast<int>(kOnlyTls13.size()));
  CONF* settings = NCONF_new(nullptr);
  long line = 0;
  const bool ok = text != nullptr && settings != nullptr &&
                  NCONF_load_bio(settings, text, &line) == 1 &&
                  CONF_modules_load(settings, nullptr, 0) == 1;
  NCONF_free(settings);
  BIO_free(text);
  ATOLL_CHECK(ok, "cannot ask OpenSSL for TLS 1.3: {} at line {}", openssl_reason(), line);
}

// OpenSSL's texts for the mistakes of callers, and ours.
std::string plain_words(const std::string& reason) {
  struct Words {
    const char* theirs;
    const char* ours;
  };
  constexpr Words kWords[] = {
      {"certificate verify failed", "its certificate is of another authority or has expired"},
      {"peer did not return a certificate", "it showed no certificate"},
      {"unsupported protocol", "it does not speak TLS 1.3"},
      {"wrong version number", "it does not speak TLS"},
      {"http request", "it does not speak TLS"},
      {"packet length too long", "it does not speak TLS"},
  };
  for (const Words& words : kWords) {
    if (reason == words.theirs) return fmt::format("{} ({})", words.ours, reason);
  }
  return reason;
}

// What gRPC says of a handshake that failed, so that a server's log shows who was turned away and
// why: one line a minute for each reason, because a stranger can fail as often as it likes.
void report_handshake(std::string_view message) {
  static std::mutex mutex;
  static std::map<std::string, std::chrono::steady_clock::time_point> reported;
  // "...: error:0A0000C7:SSL routines::peer did not return a certificate."
  const std::size_t routines = message.rfind("::");
  std::string reason(routines == std::string_view::npos ? message : message.substr(routines + 2));
  while (!reason.empty() && reason.back() == '.') reason.pop_back();
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mutex);
    if (reported.size() > 100) reported.clear();
    const auto [at, is_new] = reported.emplace(reason, now);
    if (!is_new && now - at->second < std::chrono::minutes(1)) return;
    at->second = now;
  }
  log::warning("a TLS handshake with a peer failed: {}", plain_words(reason));
}

void take_log_line(gpr_log_func_args* args) {
  const std::string_view message = args->message;
  if (message.starts_with("Handshake failed with fatal error")) {
    report_handshake(message);
  } else if (log::topic_enabled("wire")) {
    log::info("gRPC: {}", message);
  }
}

// All addresses of a host as gRPC takes them, "ipv6:%5B::1%5D:4711,...": one family a list, so
// those of IPv4 in the form that IPv6 has for them. Looked up here and not by gRPC, which would ask
// for a name again only every 30 seconds.
std::string target_of(const HostPort& address) {
  std::string target;
  for (const SocketAddress& one : resolve(address, nullptr)) {
    const char* mapped = one.storage.ss_family == AF_INET ? "::ffff:" : "";
    target += fmt::format("{}%5B{}{}%5D:{}", target.empty() ? "ipv6:" : ",", mapped, one.host(),
                          address.port);
  }
  return target;
}

}  // namespace

void prepare_libraries() {
  static std::once_flag once;
  std::call_once(once, [] {
    allow_only_tls13();
    gpr_set_log_function(take_log_line);
    // Kept until the process ends: when the last object of gRPC goes, it joins threads of its own
    // that may sit in a poll of ten seconds.
    grpc_init();
    // Abseil reads the CPU's clock rate once, where two threads first want one of its locks at the
    // same time, from a file that few systems have. When that was a lock in gRPC's connecting
    // (1.51), between connect() and the look at errno, the connection had failed with "No such file
    // or directory". Nothing public asks for it.
    (void)absl::base_internal::NominalCPUFrequency();
  });
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(
    const std::optional<Identity>& identity) {
  prepare_libraries();
  if (!identity) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = identity->authority_pem;
  options.pem_key_cert_pairs.push_back({identity->key_pem, identity->certificate_pem});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(
    const std::optional<Identity>& identity) {
  prepare_libraries();
  if (!identity) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = identity->authority_pem,
                               .pem_private_key = identity->key_pem,
                               .pem_cert_chain = identity->certificate_pem});
}

std::shared_ptr<grpc::Channel> open_channel(
    const ChannelSettings& settings, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  const std::string target = target_of(settings.address);
  if (target.empty()) return nullptr;
  grpc::ChannelArguments arguments;
  // Several channels to one address are several connections.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Nothing is asked of the environment.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // This one is also how long gRPC lets an attempt to connect take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, settings.connect_timeout_ms);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, settings.keepalive.interval_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, settings.keepalive.timeout_ms);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 1 << 20);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(settings.max_message_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(settings.max_message_bytes));
  if (settings.server_name.empty()) {
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "atoll");
  } else {
    arguments.SetSslTargetNameOverride(settings.server_name);
  }
  return grpc::CreateCustomChannel(target, credentials, arguments);
}

}  // namespace atl::wire
