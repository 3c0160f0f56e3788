#include "atoll/watch/prometheus_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/http/access.h"
#include "atoll/http/server.h"
#include "atoll/metrics/prometheus_text.h"
#include "atoll/wire/address.h"
#include "atoll/wire/secret_file.h"

namespace atl::watch {

using http::Reply;
using http::Request;
using http::Response;

namespace {

// Prometheus keeps one connection; this leaves room for a person and for more of them.
constexpr std::size_t kMaxConnections = 16;
constexpr std::size_t kMaxBodyBytes = 1 << 10;

}  // namespace

std::string PrometheusAddress::name(std::string_view part) const {
  std::string text = prefix + std::string(part);
  if (prefix.starts_with("--")) std::ranges::replace(text, '_', '-');
  return text;
}

std::string read_token(const std::string& file, const std::string& option) {
  std::string token = wire::read_secret(file);
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back())) != 0) {
    token.pop_back();
  }
  const bool is_word = std::ranges::all_of(
      token, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; });
  constexpr std::size_t kShortest = 16;
  if (!is_word || token.size() < kShortest) {
    throw user_error(
        "{} {}: the file does not hold a token, which is one word of at least {} letters, digits, "
        "'-' and '_'; `openssl rand -hex 16` makes one",
        option, file, kShortest);
  }
  return token;
}

PrometheusAccess open_access(const PrometheusAddress& address) {
  if (!address.is_asked()) {
    for (const auto& [part, value] :
         {std::pair("token_file", &address.token_file),
          std::pair("certificate", &address.certificate), std::pair("key", &address.key)}) {
      if (value->empty()) continue;
      throw user_error("{0} has no effect without {1}; set {1} to HOST:PORT", address.name(part),
                       address.name("listen"));
    }
    return {};
  }
  const wire::HostPort where = wire::parse_address(address.listen, address.name("listen").c_str());
  PrometheusAccess access{.host = where.host, .port = where.port};
  if (!address.token_file.empty()) {
    access.token = read_token(address.token_file, address.name("token_file"));
  }
  if (address.certificate.empty() != address.key.empty()) {
    throw user_error("{} and {} belong together; give both, or none", address.name("certificate"),
                     address.name("key"));
  }
  if (!address.certificate.empty()) {
    access.tls = std::make_shared<http::TlsContext>(address.certificate, address.key);
  }
  if (access.token.empty() && !http::is_loopback(where.host)) {
    throw user_error(
        "{} {}: others on the network could read the metrics; set {} to a file with a token, which "
        "Prometheus then sends, or listen at 127.0.0.1",
        address.name("listen"), address.listen, address.name("token_file"));
  }
  return access;
}

class PrometheusServer::State {
 public:
  State(PrometheusAccess access, std::function<std::string()> page)
      : access_(std::move(access)),
        page_(std::move(page)),
        server_(
            {.host = access_.host,
             .port = access_.port,
             .tls = access_.tls,
             .limits = {.body_bytes = kMaxBodyBytes},
             .max_connections = kMaxConnections,
             .yields = true},
            [this](const Request& request, const Reply& reply) {
              Response response = respond(request);
              response.add("Cache-Control", "no-store").add("X-Content-Type-Options", "nosniff");
              reply.send(std::move(response));
            }) {}

  int port() const { return server_.port(); }
  std::string url() const {
    const bool is_six = access_.host.find(':') != std::string::npos;
    return fmt::format("{}://{}{}{}:{}/metrics", access_.tls ? "https" : "http", is_six ? "[" : "",
                       access_.host, is_six ? "]" : "", port());
  }

 private:
  bool may_read(const Request& request) const {
    constexpr std::string_view kBearer = "Bearer ";
    const std::string* field = request.field("authorization");
    return field != nullptr && field->starts_with(kBearer) &&
           http::is_same_secret(std::string_view(*field).substr(kBearer.size()), access_.token);
  }

  Response respond(const Request& request) const {
    if (access_.token.empty()) {
      // Refuses DNS rebinding: another site's page that points its name at this machine still sends
      // that name as Host.
      if (!http::is_known_host(request, {})) {
        return Response::plain(421, "unknown Host; call this server by an IP address or localhost");
      }
    } else if (!may_read(request)) {
      return Response::plain(401, "the token of this server is needed: Authorization: Bearer TOKEN")
          .add("WWW-Authenticate", "Bearer");
    }
    if (request.method != "GET" && request.method != "HEAD") {
      return Response::plain(405, "only GET and HEAD are served").add("Allow", "GET, HEAD");
    }
    if (request.path != "/metrics") return Response::plain(404, "metrics are at /metrics");
    metrics::PrometheusText process;
    add_process(process);
    return Response::of(metrics::kPrometheusType, page_() + process.text());
  }

  const PrometheusAccess access_;
  const std::function<std::string()> page_;
  http::Server server_;  // last: its thread uses the others
};

PrometheusServer::PrometheusServer(const PrometheusAddress& address,
                                   std::function<std::string()> page)
    : state_(std::make_unique<State>(open_access(address), std::move(page))) {
  log::info("metrics for Prometheus at {}", url());
}

PrometheusServer::~PrometheusServer() = default;

int PrometheusServer::port() const {
  return state_->port();
}

std::string PrometheusServer::url() const {
  return state_->url();
}

}  // namespace atl::watch
