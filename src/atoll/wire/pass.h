#pragma once

#include <cstddef>
#include <string>

namespace atl::wire {

/// Hexadecimal digits of a pass (Caller::pass): 128 bits.
inline constexpr std::size_t kPassDigits = 32;

/// One that nobody can guess.
std::string new_pass();

/// Whether `shown` is the pass; how long the answer takes says nothing about it. Nobody shows an
/// empty one.
bool is_pass(const std::string& pass, const std::string& shown);

}  // namespace atl::wire
