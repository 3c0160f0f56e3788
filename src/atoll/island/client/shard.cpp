#include "atoll/island/client/shard.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/island/client/delta_pieces.h"
#include "atoll/wire/address.h"

namespace atl::island {

// Sizes of pieces and blocks are powers of two.
parallel::ElementRange shard_range(std::int64_t elements, int vectors, const ShardPlace& place) {
  const std::int64_t unit =
      std::max(piece_size(elements), StatePart::block_elements(elements, vectors));
  const std::int64_t units = (elements + unit - 1) / unit;
  const auto edge = [&](std::int64_t rank) {
    return std::min(elements, units * rank / place.num_ranks * unit);
  };
  return {edge(place.rank), edge(place.rank + 1)};
}

std::string join_addresses(const std::vector<std::string>& addresses) {
  std::string text;
  for (const std::string& address : addresses) text += (text.empty() ? "" : ",") + address;
  return text;
}

std::vector<std::string> split_addresses(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    all.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

std::string address_of_rank(const std::string& setting, const char* name, const ShardPlace& place) {
  const std::vector<std::string> all = split_addresses(setting);
  const auto rank = static_cast<std::size_t>(place.rank);
  if (all.size() == static_cast<std::size_t>(place.num_ranks)) return all[rank];
  if (all.size() != 1) {
    throw user_error("{}={} has {} addresses for {} ranks: give one, or one for each rank", name,
                     setting, all.size(), place.num_ranks);
  }
  wire::HostPort address = wire::parse_address(setting, name);
  if (address.port == 0) return setting;
  address.port += place.rank;
  if (address.port > 65535) {
    throw user_error("{}={}: rank {} would have port {}; choose a lower port", name, setting,
                     place.rank, address.port);
  }
  return wire::to_string(address);
}

}  // namespace atl::island
