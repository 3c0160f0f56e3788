#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "atoll/model_dir/model_path.h"
#include "atoll/text/chat/template.h"
#include "atoll/text/tokenizer.h"

namespace atl::model_dir {

/// The chat template that `given` names: a Jinja file, a model directory, or one of the templates
/// of `model` by its name or its place (0 is the first) among chat_templates_in(). Empty: that of
/// `model`. Of an adapter, where it has none itself, the templates are its base model's. A file's
/// bos_token and eos_token are those of the model's tokenizer_config.json, else the tokenizer's end
/// of text. Throws Error(kUser) when there is none, naming those that there are. `model` may be
/// empty where `given` is a path.
ChatTemplate find_chat_template(const std::filesystem::path& given, const ModelPath& model,
                                const Tokenizer& tokenizer);

/// The template of `model` that `given` names, where it names one: no path, but a name or a place
/// as above.
std::optional<NamedChatTemplate> named_chat_template(const std::filesystem::path& given,
                                                     const ModelPath& model);

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
