#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace atl {

/// "9,812".
std::string format_count(std::int64_t count);

/// "1 island", "1,000 islands", "0 batches": a count and its noun. `plural` is needed where the
/// noun does not end with an s, or with "es" after s, x, ch or sh.
std::string counted(std::int64_t count, std::string_view noun, std::string_view plural = "");

/// "7.9 GiB", "1 byte".
std::string format_bytes(std::uint64_t bytes);

}  // namespace atl
