#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "atoll/base/files/read_file.h"

namespace atl {

/// Throws Error(kUser) when a file's content is UTF-16 or UTF-32, with the command that converts
/// it; atoll reads UTF-8. It is known by its byte order mark, or, of text that is mostly Latin, by
/// the zeros of which every other byte of UTF-16 then is one.
void refuse_utf16(const std::filesystem::path& path, std::string_view content);

/// A UTF-8 text without the byte order mark that it may begin with: that is no part of the text.
std::string_view without_byte_order_mark(std::string_view content);

/// read_file, of a text that people write and atoll reads as UTF-8, without a byte order mark;
/// throws as refuse_utf16 too.
std::string read_text_file(const std::filesystem::path& path,
                           std::uint64_t max_bytes = kMaxFileBytes);

/// "invalid UTF-8 byte at index 4: 0xFF", or "" of text that is UTF-8.
std::string utf8_problem(const std::string& text);

}  // namespace atl
