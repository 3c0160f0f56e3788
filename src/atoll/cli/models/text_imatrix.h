#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/ckpt/gguf/imatrix.h"

namespace atl::cli {

/// The importance of a model's columns for a text: runs the model on this machine's CPU over the
/// first `max_windows` windows of the texts, of 512 tokens or as many as the model or the text has.
/// `model`: a whole model's directory. Throws Error(kUser) for a model that has no form in GGUF and
/// for texts of fewer than two tokens.
ckpt::Imatrix imatrix_of_text(const std::filesystem::path& model,
                              const std::vector<std::string>& texts, std::int64_t max_windows);

}  // namespace atl::cli
