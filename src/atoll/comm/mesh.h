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
  /// Axes that name the same channel keep one order of calls: "replicate" and "shard", where one
  /// reduces what the other has made. Empty: a channel of its own, of the axis' name.
  std::string channel = {};
  /// Neighbours on the ring of this axis get channels of their own for send() and recv(), one for
  /// each way, so that a pipeline cannot deadlock whatever the order of its messages.
  bool point_to_point = false;
};

/// The ranks of a World as a grid of named axes, the last varying fastest: the ranks along one
/// axis, the others fixed, are a Group. Calls of axes with different channels do not wait for each
/// other. The first channel that has more than one rank is the world's own, that of World::all();
/// each further one is a transport and, once something is started on it, a thread.
class Mesh {
 public:
  /// Every rank must make it, with the same axes. Throws Error(kUser) naming the axes when the
  /// product of their sizes is not the world's size, PeerError when a channel cannot be opened.
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
  /// How far along axis `index` a rank of the world is.
  int place_of(int rank, std::size_t index) const;
  /// The ranks that differ from this one along axes of that channel alone.
  std::vector<int> members_of(const std::string& channel) const;
  std::vector<PairChannels> open_pairs(const Axis& axis, const std::vector<int>& members) const;

  World& world_;
  std::vector<Axis> axes_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace atl::comm
