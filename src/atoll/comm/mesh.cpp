#include "atoll/comm/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::comm {

namespace {

// How far apart in the world neighbours along axis `index` are: the last axis varies fastest.
int stride_of(const std::vector<Axis>& axes, std::size_t index) {
  int stride = 1;
  for (std::size_t i = index + 1; i < axes.size(); ++i) stride *= axes[i].size;
  return stride;
}

void check_axes(const std::vector<Axis>& axes, int world_size) {
  std::vector<std::string> texts;
  std::int64_t product = 1;
  for (const Axis& axis : axes) {
    texts.push_back(fmt::format("{}={}", axis.name, axis.size));
    if (axis.size < 1) throw user_error("mesh: {}: an axis has at least one rank", texts.back());
    for (const Axis& other : axes) {
      ATOLL_CHECK(&other == &axis || other.name != axis.name, "two axes named {}", axis.name);
    }
    product *= axis.size;
    if (product > world_size) break;
  }
  if (product != world_size) {
    throw user_error(
        "mesh: {} do not make {} ranks; the product of the axes must be the number "
        "of ranks",
        fmt::join(texts, " x "), world_size);
  }
}

}  // namespace

Mesh::Mesh(World& world, std::vector<Axis> axes) : world_(world), axes_(std::move(axes)) {
  check_axes(axes_, world.size());
  for (Axis& axis : axes_) {
    if (axis.channel.empty()) axis.channel = axis.name;
  }
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const Axis& axis = axes_[i];
    const int stride = stride_of(axes_, i);
    const int first = world.rank() - coordinate(axis.name) * stride;
    std::vector<int> members;
    for (int place = 0; place < axis.size; ++place) members.push_back(first + place * stride);
    Channel& channel = world.channel(axis.channel, members_of(axis.channel));
    groups_.push_back(world.group(members, axis.name, channel));
    if (axis.point_to_point) groups_.back()->set_pair_channels(open_pairs(axis, members));
  }
}

std::vector<int> Mesh::members_of(const std::string& channel) const {
  std::vector<int> members;
  for (int rank = 0; rank < world_.size(); ++rank) {
    bool is_member = true;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      is_member &= axes_[i].channel == channel || place_of(rank, i) == place_of(world_.rank(), i);
    }
    if (is_member) members.push_back(rank);
  }
  return members;
}

// All ranks open the channels of the ring in the same order, so that no two wait for each other.
// The channel from the lower rank of a pair has another name than the channel back.
std::vector<PairChannels> Mesh::open_pairs(const Axis& axis,
                                           const std::vector<int>& members) const {
  std::vector<PairChannels> pairs;
  const auto self = coordinate(axis.name);
  for (int place = 0; axis.size > 1 && place < (axis.size == 2 ? 1 : axis.size); ++place) {
    const int next = (place + 1) % axis.size;
    if (self != place && self != next) continue;
    const int low = std::min(place, next), high = std::max(place, next);
    const std::vector<int> pair{members[static_cast<std::size_t>(low)],
                                members[static_cast<std::size_t>(high)]};
    Channel& up = world_.channel(axis.name + " up", pair);
    Channel& down = world_.channel(axis.name + " down", pair);
    const bool is_low = self == low;
    pairs.push_back({is_low ? high : low, is_low ? &up : &down, is_low ? &down : &up});
  }
  return pairs;
}

Group& Mesh::group(const std::string& axis) {
  return *groups_[find(axis)];
}

int Mesh::coordinate(const std::string& axis) const {
  return place_of(world_.rank(), find(axis));
}

int Mesh::place_of(int rank, std::size_t index) const {
  return rank / stride_of(axes_, index) % axes_[index].size;
}

std::size_t Mesh::find(const std::string& axis) const {
  std::size_t index = 0;
  while (index < axes_.size() && axes_[index].name != axis) ++index;
  ATOLL_CHECK(index < axes_.size(), "no axis {}", axis);
  return index;
}

}  // namespace atl::comm
