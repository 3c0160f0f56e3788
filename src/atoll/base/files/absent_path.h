#pragma once

// What to say of a path that is not there, beyond that it is not.

#include <filesystem>
#include <string>

namespace atl {

/// "; did you mean runs/kjv-demo?": the nearest name in the directory where `path` would be. Empty
/// when none is near, or there is no such directory.
std::string advice_for_absent(const std::filesystem::path& path);

/// The same for a path that should be a text, or a directory of texts: what to do instead of an
/// address, a pattern such as books/*.txt, or a data set of the Hugging Face hub.
std::string advice_for_absent_text(const std::filesystem::path& path);

}  // namespace atl
