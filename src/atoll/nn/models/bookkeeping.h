#pragma once

// Which fields of a config.json say nothing about what a model computes.

#include <string_view>

namespace atl::nn {

/// Whether this is a field that libraries and trainers write into any family's config.json and that
/// changes no number: generation settings, labels, caches, who made the file.
bool is_bookkeeping(std::string_view field);

/// Whether a field that nobody knows is named like a part of an architecture ("rope", "norm",
/// "experts", "scale", "cap", "window", "bias", ...), so that it must not be passed over.
bool is_named_like_architecture(std::string_view field);

}  // namespace atl::nn
