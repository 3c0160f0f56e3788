#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace atl::train {

/// "PATTERN=RANK" of each entry of lora.rank_pattern; the last '=' counts. Throws Error(kUser)
/// naming the entry for one of another form, or a rank that is not from 1 to 4096.
std::vector<std::pair<std::string, std::int64_t>> rank_patterns(
    const std::vector<std::string>& entries);
/// "PATTERN=ALPHA" of lora.alpha_pattern likewise; an alpha is above 0.
std::vector<std::pair<std::string, double>> alpha_patterns(const std::vector<std::string>& entries);

/// lora.trainable_token_indices as tokens. Throws Error(kUser) naming the entry for one that is no
/// whole number from 0, or that is there twice.
std::vector<std::int64_t> trained_tokens(const std::vector<double>& entries);

}  // namespace atl::train
