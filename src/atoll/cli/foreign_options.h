#pragma once

#include <string>
#include <string_view>

namespace atl::cli {

/// What to do instead of an option that other programs have (torchrun, mpirun, llama.cpp,
/// transformers), or that one would expect: "the recipe is an argument: ...". `typed` is without
/// dashes and value. Empty when nothing is known of it for this command.
std::string foreign_option_advice(std::string_view command, std::string_view typed);

}  // namespace atl::cli
