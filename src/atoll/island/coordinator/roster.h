#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "atoll/island/coordinator/membership.h"
#include "atoll/island/protocol/protocol.h"
#include "atoll/wire/peer.h"

namespace atl::island {

/// Which connections have joined, as which islands: what binds all that comes to the coordinator to
/// who sent it. A message is of the island whose connection brings it. A transfer has connections
/// of its own, so it shows the secret that the island's Join told (Join::hub_pass), and comes under
/// the certificate that the Join came under; in plain text there are no certificates, and the
/// secret stands alone. Thread safe.
class Roster {
 public:
  /// The connection is the island's from now on; the one that it had before is not any more.
  /// `certificate`: the name that was checked; "" in plain text.
  void admit(ConnectionId connection, IslandId island, const std::string& certificate,
             const std::string& pass);
  /// The connection has ended. One that never joined is ignored.
  void dismiss(ConnectionId connection);

  /// kNobody: it has not joined.
  IslandId island_of(ConnectionId connection) const;
  /// name_of() the island that calls; nothing: nobody who is here.
  std::optional<std::string> recognise(const wire::Caller& caller) const;
  /// What an island is called among those who may put and fetch blobs.
  static std::string name_of(IslandId island) { return std::to_string(island); }

 private:
  struct Entry {
    IslandId island = kNobody;
    std::string certificate;
    std::string pass;
  };

  mutable std::mutex mutex_;
  std::map<ConnectionId, Entry> entries_;
};

}  // namespace atl::island
