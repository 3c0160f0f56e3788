#pragma once

// Which servers have which slices: pure functions.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "atoll/param_server/messages.h"

namespace atl::param_server {

/// The chains of a run that begins: each slice on `replicas` servers (or all, if there are fewer),
/// bytes and heads shared evenly.
std::vector<std::vector<ServerId>> place(std::span<const Slice> slices,
                                         std::span<const ServerId> servers, std::int64_t replicas);

/// One slice that a server shall get a copy of.
struct Move {
  std::uint32_t slice = 0;
  ServerId to = kNobody;
  ServerId from = kNobody;  ///< which drops it then; kNobody: none does
};

/// What is to be copied now: slices that lack a replica, then those that a server with less than
/// its share takes from the one that has most, as few as make all even. `leaving` has, of each
/// slice in `view.joining`, who drops it.
std::vector<Move> plan_moves(std::span<const Slice> slices, const View& view,
                             std::span<const ServerId> servers, std::int64_t replicas,
                             const std::map<std::uint32_t, ServerId>& leaving);

}  // namespace atl::param_server
