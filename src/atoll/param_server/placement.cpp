#include "atoll/param_server/placement.h"

#include <algorithm>
#include <numeric>

#include "atoll/base/check.h"

namespace atl::param_server {

namespace {

using Loads = std::map<ServerId, std::int64_t>;  // elements

bool holds(const std::vector<ServerId>& chain, ServerId server) {
  return std::find(chain.begin(), chain.end(), server) != chain.end();
}

// The server with the least load that is not in `chain`; kNobody: all are.
ServerId least_loaded(const Loads& loads, const std::vector<ServerId>& chain) {
  ServerId best = kNobody;
  for (const auto& [server, load] : loads) {
    if (holds(chain, server)) continue;
    if (best == kNobody || load < loads.at(best)) best = server;
  }
  return best;
}

}  // namespace

std::vector<std::vector<ServerId>> place(std::span<const Slice> slices,
                                         std::span<const ServerId> servers, std::int64_t replicas) {
  ATOLL_CHECK(!servers.empty(), "no servers");
  Loads loads;
  Loads heads;
  for (const ServerId server : servers) loads[server] = heads[server] = 0;
  // Large ones first: the small ones then even out what is left.
  std::vector<std::size_t> order(slices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return slices[a].count > slices[b].count; });
  std::vector<std::vector<ServerId>> chains(slices.size());
  for (const std::size_t i : order) {
    std::vector<ServerId>& chain = chains[i];
    while (static_cast<std::int64_t>(chain.size()) < replicas) {
      const ServerId next = least_loaded(loads, chain);
      if (next == kNobody) break;
      chain.push_back(next);
      loads[next] += slices[i].count;
    }
    const auto head = std::min_element(chain.begin(), chain.end(),
                                       [&](ServerId a, ServerId b) { return heads[a] < heads[b]; });
    heads[*head] += slices[i].count;
    std::iter_swap(chain.begin(), head);
  }
  return chains;
}

std::vector<Move> plan_moves(std::span<const Slice> slices, const View& view,
                             std::span<const ServerId> servers, std::int64_t replicas,
                             const std::map<std::uint32_t, ServerId>& leaving) {
  // Loads as they will be when all that is under way is done.
  Loads loads;
  for (const ServerId server : servers) loads[server] = 0;
  std::vector<std::vector<ServerId>> members = view.chains;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (view.joining[i] != kNobody) members[i].push_back(view.joining[i]);
    if (const auto gone = leaving.find(static_cast<std::uint32_t>(i)); gone != leaving.end()) {
      std::erase(members[i], gone->second);
    }
    for (const ServerId server : members[i]) {
      if (const auto at = loads.find(server); at != loads.end()) at->second += slices[i].count;
    }
  }
  std::vector<Move> moves;
  std::vector<bool> busy(slices.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    busy[i] = view.joining[i] != kNobody || view.chains[i].empty();
    if (busy[i] || static_cast<std::int64_t>(members[i].size()) >= replicas) continue;
    const ServerId to = least_loaded(loads, members[i]);
    if (to == kNobody) continue;
    moves.push_back({static_cast<std::uint32_t>(i), to, kNobody});
    loads[to] += slices[i].count;
    busy[i] = true;
  }
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  for (bool moved = !loads.empty(); moved;) {
    moved = false;
    const auto [least, most] = std::minmax_element(loads.begin(), loads.end(), less);
    for (std::size_t i = 0; i < slices.size() && !moved; ++i) {
      if (busy[i] || !holds(members[i], most->first) || holds(members[i], least->first)) continue;
      if (most->second - least->second < 2 * slices[i].count) continue;
      moves.push_back({static_cast<std::uint32_t>(i), least->first, most->first});
      least->second += slices[i].count;
      most->second -= slices[i].count;
      busy[i] = moved = true;
    }
  }
  return moves;
}

}  // namespace atl::param_server
