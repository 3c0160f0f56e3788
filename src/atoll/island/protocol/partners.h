#pragma once

// Who exchanges with whom where islands gossip: a pure function of the outer step and of who is
// ready for it, so that the coordinator that decides and the audit that checks get the same.

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// Which of the outer step's exchanges each of these islands is in, from 1, by place in `ready`.
/// Two are in each, and three in one of them where the number is odd: an island that rested would
/// keep for itself what it has trained. A power of two is paired as a hypercube, one dimension an
/// outer step: after as many outer steps as it has dimensions every island has met what each other
/// one had. Other numbers are paired at random, by Philox keyed with the outer step. NoLoCo (arXiv
/// 2506.10911) pairs at random.
std::vector<int> exchanges_of(std::int64_t outer_step, std::span<const IslandId> ready);

}  // namespace atl::island
