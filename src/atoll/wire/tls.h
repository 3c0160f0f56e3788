#pragma once

// gRPC's credentials and settings, in one place. Only for the .cpp files here.

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "atoll/wire/address.h"
#include "atoll/wire/identity.h"
#include "atoll/wire/peer.h"

namespace atl::wire {

/// What must be done once before gRPC or OpenSSL is used: TLS 1.3 and nothing older, and gRPC's log
/// lines into ours.
void prepare_libraries();

/// Both sides show certificates of the identity's authority; without an identity: plaintext.
std::shared_ptr<grpc::ServerCredentials> server_credentials(
    const std::optional<Identity>& identity);
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(
    const std::optional<Identity>& identity);

/// How a client connects.
struct ChannelSettings {
  HostPort address;
  std::string server_name;  ///< that the certificate must have; empty without TLS
  int connect_timeout_ms = 0;
  Keepalive keepalive;
  std::size_t max_message_bytes = 0;
};

/// A channel with a connection of its own, which it makes when first used; null when the host's
/// name cannot be looked up.
std::shared_ptr<grpc::Channel> open_channel(
    const ChannelSettings& settings, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

/// Sent by a server before all else, so that a client knows that an atoll answers.
inline constexpr const char* kGreetingKey = "atoll-wire";
inline constexpr const char* kGreeting = "1";

/// What a caller of blobs shows beside its certificate (Caller::access_token).
inline constexpr const char* kAccessTokenKey = "atoll-pass";
inline constexpr std::size_t kMaxAccessTokenBytes = 64;

/// How much the protocol adds to a frame or a chunk, at most.
inline constexpr std::size_t kEnvelopeBytes = 4096;

/// Bytes that may be on their way in one stream without an answer. 4 MiB in each of 4 streams fill
/// 1 Gbit/s over 100 ms; a stream that is not read holds no more than this.
inline constexpr int kWindowBytes = 4 << 20;

}  // namespace atl::wire
