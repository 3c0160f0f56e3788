#pragma once

// What encoding and decoding add to the codecs' own loops.

#include <span>

namespace atl::compress {

/// sum[i] += weight * values[i], rounded twice.
void add_weighted(float weight, std::span<const float> values, std::span<float> sum);

/// error[i] = decay * error[i] + x[i], rounded twice.
void add_decayed(float decay, std::span<const float> x, std::span<float> error);

/// values[i] = (values[i] + offset) - offset, rounded twice.
void add_and_subtract(float offset, std::span<float> values);

/// error[i] -= said[i].
void subtract(std::span<const float> said, std::span<float> error);

}  // namespace atl::compress
