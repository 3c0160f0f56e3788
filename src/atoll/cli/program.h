#pragma once

#include <string>
#include <vector>

namespace atl::cli {

/// The program `atoll` on these arguments (without its own name). Returns the exit code: 0, 1 for a
/// failure, 2 for a mistake of the user. Every error is one line on standard error.
int run_program(const std::vector<std::string>& arguments);

}  // namespace atl::cli
