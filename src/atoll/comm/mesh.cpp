#include "atoll/comm/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const int stride = stride_of(axes_, i);
    const int first = world.rank() - coordinate(axes_[i].name) * stride;
    std::vector<int> members;
    for (int place = 0; place < axes_[i].size; ++place) members.push_back(first + place * stride);
    groups_.push_back(world.group(std::move(members), axes_[i].name));
  }
}

Group& Mesh::group(const std::string& axis) {
  return *groups_[find(axis)];
}

int Mesh::coordinate(const std::string& axis) const {
  const std::size_t index = find(axis);
  return world_.rank() / stride_of(axes_, index) % axes_[index].size;
}

std::size_t Mesh::find(const std::string& axis) const {
  std::size_t index = 0;
  while (index < axes_.size() && axes_[index].name != axis) ++index;
  ATOLL_CHECK(index < axes_.size(), "no axis {}", axis);
  return index;
}

}  // namespace atl::comm
