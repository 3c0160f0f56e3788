#pragma once

#include <cstddef>
#include <string>

namespace atl::wire {

/// Hexadecimal digits of an access token (Caller::access_token): 128 bits.
inline constexpr std::size_t kAccessTokenDigits = 32;

/// A new random token, which nobody can guess.
std::string new_access_token();

/// Whether `shown` equals `token`, compared in constant time. An empty token matches nothing.
bool is_access_token(const std::string& token, const std::string& shown);

}  // namespace atl::wire
