#pragma once

// What sessions and transfers share on the side that calls. Only for the .cpp files here.

#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "atoll/wire/identity.h"
#include "atoll/wire/probe.h"
#include "atoll/wire/revocations.h"
#include "atoll/wire/secret.h"
#include "atoll/wire/tls.h"

namespace atl::wire {

/// What a client needs for its calls to one server: its address, and the caller's credentials.
class ClientConnector {
 public:
  /// Throws Error(kUser) for a bad address, plaintext to more than loopback, a secret beside an
  /// identity, and what load_identity() and Secret throw.
  ClientConnector(const std::string& address, const std::optional<std::filesystem::path>& identity,
                  const std::optional<std::filesystem::path>& secret,
                  const std::string& server_name, int connect_timeout_ms,
                  const Keepalive& keepalive, std::size_t max_message_bytes);

  /// A new connection, made when first used; null when the host's name cannot be looked up.
  std::shared_ptr<grpc::Channel> open() const { return open_channel(settings_, credentials_); }

  /// Adds the caller's proof to a call; to be called before the call is made.
  void introduce(grpc::ClientContext& context) const;

  /// Both to be asked when a call's initial metadata is there. Whether it is an atoll's that takes
  /// the call: else the status will tell why not.
  static bool is_greeted(const grpc::ClientContext& context);
  /// Why the server is not to be trusted: "" or one line.
  std::string objection(const grpc::ClientContext& context) const;

  /// Why a call failed that ended with `status`. May ask the server, for as long as a connection
  /// may take; `cancel` ends that.
  ProbeResult explain(const grpc::Status& status, const std::stop_token& cancel) const;

  const std::string& address() const { return address_; }
  int connect_timeout_ms() const { return settings_.connect_timeout_ms; }

 private:
  std::optional<Identity> identity_;
  std::unique_ptr<Revocations> revocations_;  // null without TLS
  std::optional<Secret> secret_;
  std::string nonce_;  // with a secret
  ChannelSettings settings_;
  std::string address_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
};

}  // namespace atl::wire
