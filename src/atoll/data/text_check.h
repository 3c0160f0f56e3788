#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace atl::data {

/// Throws Error(kUser) saying what to do when the file `path` with this content is no text to
/// learn: it is compressed, Parquet or Arrow; JSON that is not one object a line; by its ending
/// CSV, HTML, XML or YAML; or, naming line and byte, it has bytes that are not UTF-8 or a NUL,
/// which a tokenizer would learn as they are. In a .txt file markup and tables are text.
void check_is_text(const std::filesystem::path& path, std::string_view content);

/// One sentence on what a text looks like that people seldom want to learn as it is spelled (a
/// table, HTML), and what to do; empty for others.
std::string oddity_of_text(const std::filesystem::path& path, std::string_view content);

}  // namespace atl::data
