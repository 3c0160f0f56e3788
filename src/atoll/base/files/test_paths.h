#pragma once

#include <filesystem>

namespace atl {

// Where tests find what they read and start. One small file is compiled with these paths and no
// other, so that a compiler cache serves the tests of every clone.

/// The top of the sources that the tests were built from, absolute.
std::filesystem::path test_source_dir();

/// The program `atoll` of the same build, absolute.
std::filesystem::path test_program();

}  // namespace atl
