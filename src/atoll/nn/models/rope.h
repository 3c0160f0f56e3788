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
/// config.max_positions must have been read. Where config.local_rope_theta is above 0, layers with
/// a window have a base of their own: "rope_local_base_freq", or an object for each kind of layer.
void read_rope(ConfigReader& reader, ModelConfig& config);

/// Reads "partial_rotary_factor", wherever it stands, into config.rotary_dim; config.heads and the
/// scaling must have been read. Throws Error(kUser) where it does not make whole pairs, or
/// longrope's lists have another length.
void read_rotary_part(ConfigReader& reader, ModelConfig& config, double default_part);

/// The angle by which each of the head_dim / 2 pairs of elements turns from one position to the
/// next, computed in f32 step by step as transformers does.
/// `positions`, which the context may have, choose between longrope's lists.
std::vector<float> rope_frequencies(std::int64_t head_dim, double theta, const RopeScaling& scaling,
                                    std::int64_t positions = 0);

/// The table for ops::rope, (positions, head_dim), computed in f32 as transformers does, so that
/// both rotate by the same angles. `dtype`: f32 or f64.
std::unique_ptr<Constant> make_rope_table(Dtype dtype, std::int64_t positions,
                                          std::int64_t head_dim, double theta,
                                          const RopeScaling& scaling = {});

}  // namespace atl::nn
