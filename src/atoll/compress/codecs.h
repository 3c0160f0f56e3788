#pragma once

// One function for each file with a codec; registry.cpp lists them. What the bytes of a block are
// is said there.

#include <memory>
#include <string_view>

#include "atoll/compress/codec.h"

namespace atl::compress {

/// The values as they are.
std::unique_ptr<Codec> make_f32();

/// The nearest bf16 of each.
std::unique_ptr<Codec> make_bf16();

/// 8 bits a value: 255 even steps between minus and plus the largest of 256.
std::unique_ptr<Codec> make_int8();

/// 4 bits a value: 15 even steps between minus and plus the largest of 256.
std::unique_ptr<Codec> make_int4();

/// Sign and 3 bits of exponent, 15 values in all (arXiv 2501.18512), a power of two for each 512.
std::unique_ptr<Codec> make_e3m0();

/// The largest K of each CHUNK in 2 bits, with error feedback (SparseLoCo, arXiv 2508.15706).
/// `parameters`: "K/CHUNK", or empty for 64/4096.
std::unique_ptr<Codec> make_topk(std::string_view parameters);

/// All but a part of each 256, which is chosen by sign and magnitude (arXiv 2311.08105).
/// `parameters`: percent that are left out, or empty for 50.
std::unique_ptr<Codec> make_sign_prune(std::string_view parameters);

}  // namespace atl::compress
