#pragma once

// Error feedback in a sum over ranks: what a codec's bytes do not say of this rank's values is
// kept as its residual, and goes with the values of the next step (1-bit SGD, Seide et al. 2014;
// Karimireddy et al. 2019).

#include <cstddef>
#include <span>

#include "atoll/compress/codec.h"

namespace atl::compress {

/// Rounds `residual` to a grid of its own: multiples of 2^-22 of the power of two from its largest
/// magnitude up. They are whole numbers of 23 bits times one power of two, so that sums of the
/// residual of several ranks are exact in few floats, and ranks that come and go conserve them.
void round_residual(std::span<float> residual);

/// Encodes x + residual, block by block, into `out` (codec.max_bytes(x.size())), and leaves in
/// `residual` what the bytes do not say, by round_residual() of each block. `residual` may be
/// empty: there is no residual, and what the bytes do not say is lost. The codec has blocks that
/// begin with a scale as f32. Of a block that it cannot encode the scale is made NaN, and its
/// `residual` stays as it was. Allocates nothing.
void encode_residual(const Codec& codec, std::span<const float> x, std::span<float> residual,
                     std::span<std::byte> out);

/// sum = the values of encode_residual's bytes, NaN for a block that could not be encoded; or, with
/// `adds`, sum += these. Throws Error(kDamaged) as Codec::decode does.
void decode_residual(const Codec& codec, std::span<const std::byte> bytes, bool adds,
                     std::span<float> sum);

}  // namespace atl::compress
