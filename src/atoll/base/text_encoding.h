#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "atoll/base/read_file.h"

namespace atl {

/// Throws Error(kUser) when a file's content is UTF-16 or UTF-32, with the command that converts
/// it; atoll reads UTF-8. It is known by its byte order mark, or, of text that is mostly Latin, by
/// the zeros of which every other byte of UTF-16 then is one.
void refuse_utf16(const std::filesystem::path& path, std::string_view content);

/// read_file, of a text that people write and atoll reads as UTF-8; throws as refuse_utf16 too.
std::string read_text_file(const std::filesystem::path& path,
                           std::uint64_t max_bytes = kMaxFileBytes);

}  // namespace atl
