#pragma once

#include <string>
#include <string_view>

namespace atl::cli {

/// What to do instead of a command that other programs have (ollama, llama.cpp, huggingface-cli,
/// torchrun, axolotl, vLLM, nanochat), or that one would expect. Empty when nothing is known of it.
std::string foreign_command_advice(std::string_view typed);

}  // namespace atl::cli
