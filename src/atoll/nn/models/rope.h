#pragma once

// Rotary positions (Su et al. 2021): how config.json describes them, and the table of rotations.

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/nn/model.h"

namespace atl::nn {

class ConfigReader;

/// Reads the rotation into `config`: "rope_theta" and "rope_scaling", or "rope_parameters", which
/// holds both since transformers 5. Throws Error(kUser) naming file, field and value for a kind
/// that atoll does not compute, for numbers that cannot be, and when the two forms contradict.
/// config.max_positions must have been read.
void read_rope(ConfigReader& reader, ModelConfig& config);

/// The angle by which each of the head_dim / 2 pairs of elements turns from one position to the
/// next, computed in f32 step by step as transformers does.
std::vector<float> rope_frequencies(std::int64_t head_dim, double theta,
                                    const RopeScaling& scaling);

/// The table for ops::rope, (positions, head_dim), computed in f32 as transformers does, so that
/// both rotate by the same angles. `dtype`: f32 or f64.
std::unique_ptr<Constant> make_rope_table(Dtype dtype, std::int64_t positions,
                                          std::int64_t head_dim, double theta,
                                          const RopeScaling& scaling = {});

}  // namespace atl::nn
