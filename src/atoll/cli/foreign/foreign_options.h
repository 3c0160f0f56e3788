#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace atl::cli {

/// What to do instead of an option that other programs have (torchrun, mpirun, llama.cpp,
/// transformers), or that one would expect: "the recipe is an argument: ...". `typed` is without
/// dashes and value. Empty when nothing is known of it for this command.
std::string foreign_option_advice(std::string_view command, std::string_view typed);

/// The one of `names`, which an option or a part of a command may be, that other programs call
/// `word`: "cuda" for gpu. Empty when none is known.
std::string foreign_word_meant(std::string_view word, const std::vector<std::string>& names);

}  // namespace atl::cli
