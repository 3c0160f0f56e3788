#include "atoll/island/coordinator/roster.h"

#include "atoll/wire/access_token.h"

namespace atl::island {

void Roster::admit(ConnectionId connection, IslandId island, const std::string& certificate,
                   const std::string& token) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.island == island; });
  entries_[connection] = {island, certificate, token};
}

void Roster::dismiss(ConnectionId connection) {
  const std::lock_guard lock(mutex_);
  entries_.erase(connection);
}

IslandId Roster::island_of(ConnectionId connection) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(connection);
  return found == entries_.end() ? kNobody : found->second.island;
}

std::optional<std::string> Roster::authenticate(const wire::Caller& caller) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [connection, entry] : entries_) {
    const bool is_it = entry.certificate == caller.name &&
                       wire::is_access_token(entry.access_token, caller.access_token);
    if (is_it) return name_of(entry.island);
  }
  return std::nullopt;
}

}  // namespace atl::island
