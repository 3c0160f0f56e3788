#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace atl::data {

/// Throws Error(kUser) saying what to do when the file `path`, which is text by its name and begin,
/// is none to learn: it is an archive or the like; JSON that is neither one object a line nor an
/// array of objects; by its ending HTML, XML or YAML; or, naming line and byte, it has bytes that
/// are not UTF-8 or a NUL, which a tokenizer would learn as they are. In a .txt file markup is
/// text. Compressed text is decoded on the way; damaged, it throws as TextWindow does.
void check_is_text(const std::filesystem::path& path);

/// One sentence on what a text looks like that people seldom want to learn as it is spelled (a
/// table, HTML), and what to do; empty for others.
std::string oddity_of_text(const std::filesystem::path& path, std::string_view content);

}  // namespace atl::data
