#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace atl {

/// The number of characters to insert, delete, replace or swap with a neighbour to make `a` into
/// `b` (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The name that was most likely meant by `typed`, or "" when none is near. For dotted names
/// ("train.lr") one with the same last part ("optim.lr") counts as near.
std::string nearest_name(std::string_view typed, std::span<const std::string> names);

}  // namespace atl
