#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "atoll/island/coordinator/island_table.h"
#include "atoll/island/protocol/protocol.h"
#include "atoll/wire/peer.h"

namespace atl::island {

/// Which connections have joined, as which islands. A message belongs to the island whose
/// connection brings it. A transfer has connections of its own: it shows the access token of the
/// island's Join (Join::relay_token), and its certificate must have the same name as that of the
/// Join. In plain text there are no certificates, and the token alone decides. Thread safe.
class Roster {
 public:
  /// The connection is the island's from now on; the one that it had before is not any more.
  /// `certificate`: the name that was checked; "" in plain text.
  void admit(ConnectionId connection, IslandId island, const std::string& certificate,
             const std::string& token);
  /// The connection has ended. One that never joined is ignored.
  void dismiss(ConnectionId connection);

  /// kNobody: it has not joined.
  IslandId island_of(ConnectionId connection) const;
  /// name_of() the island that calls; nothing: no island that has joined.
  std::optional<std::string> authenticate(const wire::Caller& caller) const;
  /// What an island is called among those who may put and fetch blobs.
  static std::string name_of(IslandId island) { return std::to_string(island); }

 private:
  struct Entry {
    IslandId island = kNobody;
    std::string certificate;
    std::string access_token;
  };

  mutable std::mutex mutex_;
  std::map<ConnectionId, Entry> entries_;
};

}  // namespace atl::island
