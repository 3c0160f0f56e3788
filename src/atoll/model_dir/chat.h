#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "atoll/text/chat/template.h"
#include "atoll/text/tokenizer.h"

namespace atl::model_dir {

/// The chat template that `given` names (a Jinja file, or a model directory), else that of
/// `model_directory`. A file's bos_token and eos_token are those of `model_directory`'s
/// tokenizer_config.json, else the tokenizer's end of text. Throws Error(kUser) when there is none.
ChatTemplate find_chat_template(const std::filesystem::path& given,
                                const std::filesystem::path& model_directory,
                                const Tokenizer& tokenizer);

/// What a chat template writes behind an answer.
struct EndOfTurn {
  std::string text;                   ///< without white space round it; empty: nothing, or unknown
  std::optional<std::int32_t> token;  ///< the special token that it is, or begins with
};

/// What `chat` writes behind an answer, from a short conversation. A model that has learnt a
/// special token there can be stopped by it. Nothing when the template refuses that conversation.
EndOfTurn end_of_turn(const ChatTemplate& chat, const Tokenizer& tokenizer);

/// `stops` and the token that `chat` writes behind an answer, where there is one; ascending, each
/// once. What ends an answer of the model.
std::vector<std::int32_t> chat_stop_tokens(std::vector<std::int32_t> stops,
                                           const ChatTemplate& chat, const Tokenizer& tokenizer);

/// What is wrong with an end of turn that no one token marks, and what to do; empty when all is
/// well.
std::string problem_of(const EndOfTurn& end);

/// `generation_config` (a JSON object as text, or empty) with `token` among its "eos_token_id", and
/// unchanged where it is already. `of_config`: eos_token_id of config.json, which counts only while
/// `generation_config` has none.
std::string with_stop_token(const std::string& generation_config, std::int32_t token,
                            const std::vector<std::int64_t>& of_config = {});

}  // namespace atl::model_dir
