#pragma once

// Which callers a server admits. Only for the .cpp files here.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "atoll/wire/identity.h"
#include "atoll/wire/peer.h"
#include "atoll/wire/revocations.h"
#include "atoll/wire/secret.h"

namespace atl::wire {

/// A peer and the certificate that TLS has checked: it is signed by our authority.
struct CheckedPeer {
  Peer peer;
  std::string serial;
  std::int64_t not_after = 0;
};

/// What a certificate that came in a handshake says. Throws Error(kDamaged).
CheckedPeer read_checked_peer(const grpc::AuthContext& context, const std::string& address);

/// Checks callers by certificate, revocation list and secret. Thread safe.
class Admission {
 public:
  /// Throws what Revocations throws. Without an identity callers have no names; without identity
  /// and secret all callers are admitted. `kept_list`: as in ServerOptions.
  Admission(const std::optional<Identity>& identity, std::optional<Secret> secret,
            const std::optional<std::filesystem::path>& kept_list = std::nullopt);

  /// The port that the server listens at. Before it is set, a caller with a secret is told to
  /// retry.
  void set_port(int port) { port_ = port; }
  /// Fills `checked` with the caller. Not OK: the status with which to refuse the call, which is
  /// logged. Adds the server's own proof to the answer's metadata.
  grpc::Status admit(grpc::ServerContextBase& context, CheckedPeer& checked);
  /// Why a caller that was admitted before must be disconnected now: one line; "": it need not.
  std::string objection(const CheckedPeer& checked);

 private:
  std::string check_secret(grpc::ServerContextBase& context) const;
  std::string where_it_is() const;

  std::unique_ptr<Revocations> revocations_;  // null without TLS
  std::optional<Secret> secret_;
  std::atomic<int> port_ = 0;
};

/// How many calls are under way, in all and for each peer. Thread safe.
class CallLimit {
 public:
  CallLimit(const char* what, int most, int most_per_peer)
      : what_(what), most_(most), most_per_peer_(most_per_peer) {}

  /// Counts a call; leave() must follow. Not OK: there are too many. Without TLS peers have no
  /// names, and only the sum counts.
  grpc::Status enter(const std::string& name);
  void leave(const std::string& name);

 private:
  const char* what_;
  int most_, most_per_peer_;
  std::mutex mutex_;
  int sum_ = 0;
  std::map<std::string, int> by_name_;
};

}  // namespace atl::wire
