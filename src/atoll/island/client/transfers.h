#pragma once

// What the exchanges of pseudo-gradients and of state have in common. Only for exchange*.cpp.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "atoll/island/outer/state_part.h"
#include "atoll/wire/blob_transfer.h"
#include "atoll/wire/blobs.h"

namespace atl::island {

/// Where an island's own server has its pseudo-gradient.
std::string delta_key(std::int64_t outer_step);
/// Gives parts of `bytes`, which `keep` holds, and which begin at `first` of the whole.
wire::Reader reader_of(std::span<const std::byte> bytes, std::uint64_t first,
                       std::shared_ptr<const void> keep);
/// Gives chunks of a part of a state.
wire::Reader reader_of(const StatePart& part, std::span<const float> values,
                       std::shared_ptr<const void> keep);
/// Runs a transfer, and again while that makes sense, three times at most.
wire::TransferResult persist(const std::function<wire::TransferResult()>& transfer);

}  // namespace atl::island
