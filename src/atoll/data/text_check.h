#pragma once

#include <filesystem>
#include <string_view>

namespace atl::data {

/// Throws Error(kUser) saying what to do when the file `path` with this content is no text: it is
/// compressed, Parquet or Arrow, or JSON that is not one object a line; or, naming line and byte,
/// it has bytes that are not UTF-8 or a NUL, which a tokenizer would learn as they are.
void check_is_text(const std::filesystem::path& path, std::string_view content);

}  // namespace atl::data
