#include "atoll/wire/client_connector.h"

#include "atoll/base/error.h"
#include "atoll/wire/address.h"
#include "atoll/wire/admission.h"

namespace atl::wire {

namespace {

using grpc::StatusCode;

// Plaintext goes to a number, so that a name cannot mean something else when gRPC looks it up.
HostPort checked_address(const std::string& text, bool has_identity) {
  HostPort address = parse_address(text, "the address to connect to");
  if (address.port == 0) throw user_error("{} has no port to connect to", text);
  if (has_identity) return address;
  if (!is_loopback(address.host)) {
    throw user_error(
        "{} is another machine, and without a certificate everything would be readable on the way; "
        "give an identity (`atoll certs issue`)",
        text);
  }
  address.host = resolve(address, nullptr).front().host();
  return address;
}

bool is_refusal(StatusCode code) {
  return code == StatusCode::UNAUTHENTICATED || code == StatusCode::PERMISSION_DENIED ||
         code == StatusCode::UNIMPLEMENTED;
}

}  // namespace

ClientConnector::ClientConnector(const std::string& address,
                                 const std::optional<std::filesystem::path>& identity,
                                 const std::optional<std::filesystem::path>& secret,
                                 const std::string& server_name, int connect_timeout_ms,
                                 const Keepalive& keepalive, std::size_t max_message_bytes)
    : identity_(identity ? std::optional(load_identity(*identity)) : std::nullopt),
      revocations_(identity_ ? std::make_unique<Revocations>(*identity_) : nullptr),
      secret_(secret_beside(secret, identity)),
      nonce_(secret_ ? make_nonce() : ""),
      settings_{.address = checked_address(address, identity_.has_value()),
                .server_name = server_name,
                .connect_timeout_ms = connect_timeout_ms,
                .keepalive = keepalive,
                .max_message_bytes = max_message_bytes + kEnvelopeBytes},
      address_(to_string(settings_.address)),
      credentials_(channel_credentials(identity_)) {
  if (identity_ && server_name.empty()) settings_.server_name = settings_.address.host;
}

bool ClientConnector::is_greeted(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerInitialMetadata();
  return metadata.find(kGreetingKey) != metadata.end();
}

void ClientConnector::introduce(grpc::ClientContext& context) const {
  if (!secret_) return;
  context.AddMetadata(kNonceKey, nonce_);
  context.AddMetadata(kProofKey, secret_->proof("client", settings_.address.port, nonce_));
}

std::string ClientConnector::objection(const grpc::ClientContext& context) const {
  if (secret_) {
    const auto& metadata = context.GetServerInitialMetadata();
    const auto shown = metadata.find(kProofKey);
    const bool knows_it = shown != metadata.end() &&
                          is_same({shown->second.data(), shown->second.size()},
                                  secret_->proof("server", settings_.address.port, nonce_));
    if (!knows_it) {
      return fmt::format(
          "what answers at {} does not know the secret {}: it is another run's, or another process "
          "has taken its port; give the secret of the run that is meant",
          address(), secret_->path().string());
    }
  }
  if (revocations_ == nullptr) return "";
  try {
    const CheckedPeer server = read_checked_peer(*context.auth_context(), address());
    if (!revocations_->contains(server.serial)) return "";
    return fmt::format("the certificate {} of {} at {} was revoked", server.serial,
                       server.peer.name, address());
  } catch (const Error& error) {
    return error.what();
  }
}

ProbeResult ClientConnector::explain(const grpc::Status& status,
                                     const std::stop_token& cancel) const {
  if (is_refusal(status.error_code())) {
    return {fmt::format("{} refuses: {}", address(), status.error_message()), true};
  }
  if (status.ok()) return {fmt::format("what answers at {} is not an atoll", address()), true};
  if (status.error_code() == StatusCode::UNAVAILABLE && !status.error_message().empty()) {
    ProbeResult found =
        probe(address(), identity_, settings_.server_name, connect_timeout_ms(), cancel);
    if (!found.why.empty()) return found;
  }
  const std::string why =
      status.error_message().empty() ? "the connection broke" : status.error_message();
  return {fmt::format("{}: {}", address(), why), false};
}

}  // namespace atl::wire
