#pragma once

#include <memory>
#include <string>
#include <vector>

#include "atoll/comm/world.h"

namespace atl::comm {

/// One axis of a Mesh and how many ranks lie along it.
struct Axis {
  std::string name;  ///< "dp", "replicate", "shard", "tp", ...
  int size = 1;
};

/// The ranks of a World as a grid of named axes, the last varying fastest: the ranks along one
/// axis, the others fixed, are a Group.
class Mesh {
 public:
  /// Every rank must make it, with the same axes. Throws Error(kUser) naming the axes when the
  /// product of their sizes is not the world's size.
  Mesh(World& world, std::vector<Axis> axes);

  World& world() const { return world_; }
  const std::vector<Axis>& axes() const { return axes_; }
  /// The ranks that differ from this one along `axis` alone. Throws Error(kInternal) for a name
  /// that is no axis.
  Group& group(const std::string& axis);
  /// This rank's place along `axis`.
  int coordinate(const std::string& axis) const;

 private:
  std::size_t find(const std::string& axis) const;

  World& world_;
  std::vector<Axis> axes_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace atl::comm
