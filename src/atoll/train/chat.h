#pragma once

#include <filesystem>

#include "atoll/text/chat_template.h"
#include "atoll/text/tokenizer.h"

namespace atl::train {

/// The chat template that `given` names (a Jinja file, or a model directory), else that of
/// `model_directory`. A file's bos_token and eos_token are those of `model_directory`'s
/// tokenizer_config.json, else the tokenizer's end of text. Throws Error(kUser) when there is none.
ChatTemplate find_chat_template(const std::filesystem::path& given,
                                const std::filesystem::path& model_directory,
                                const Tokenizer& tokenizer);

}  // namespace atl::train
