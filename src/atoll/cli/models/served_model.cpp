#include "atoll/cli/models/served_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/model_dir/chat.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/serve/api/reasoning/reasoning.h"
#include "atoll/serve/grammar/constraint.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

std::string name_of(const ServedModelWords& words) {
  if (!words.name.empty()) return words.name;
  const fs::path path = fs::path(words.model).lexically_normal();
  const fs::path last = path.has_filename() ? path.filename() : path.parent_path().filename();
  return last.empty() || last == "." || last == ".." ? "model" : last.string();
}

// A model may have none; then chats are refused. One that a person named must be there.
std::optional<ChatTemplate> chat_of(const ServedModelWords& words,
                                    const model_dir::ModelPath& model, const Tokenizer& tokenizer) {
  try {
    return model_dir::find_chat_template(words.chat_template, model, tokenizer);
  } catch (const Error& error) {
    if (!words.chat_template.empty() || error.kind() != ErrorKind::kUser) throw;
    log::warning("no chats, texts alone: {}", error.what());
    return std::nullopt;
  }
}

}  // namespace

serve::api::ServedModel served_model(const ServedModelWords& words,
                                     const model_dir::ModelPath& path,
                                     serve::Generator& generator) {
  serve::api::ServedModel served{.name = name_of(words),
                                 .generator = &generator,
                                 .tokenizer = model_dir::load_tokenizer(path)};
  served.chat = chat_of(words, path, served.tokenizer);
  served.stop_tokens = model_dir::stop_tokens(path, served.tokenizer);
  if (served.chat) {
    served.chat_stop_tokens =
        model_dir::chat_stop_tokens(served.stop_tokens, *served.chat, served.tokenizer);
    // Qwen and Hermes write tags and "arguments", Llama 3 neither.
    const bool is_tagged = served.chat->mentions("<tool_call>");
    const bool has_parameters = !is_tagged && served.chat->mentions("\"parameters\"");
    served.tool_calls = {.is_tagged = is_tagged,
                         .arguments = has_parameters ? "parameters" : "arguments"};
    served.has_reasoning = served.chat->mentions(serve::api::kReasoningEnd);
  }
  const auto grammars = std::make_shared<serve::GrammarCache>(served.tokenizer);
  served.make_constraint = [grammars](const serve::FormatRequest& format,
                                      std::span<const std::int32_t> end_tokens) {
    return serve::make_constraint(format, *grammars, end_tokens);
  };
  served.fingerprint = fmt::format("atoll-{}-{}", ATOLL_VERSION, words.weights);
  return served;
}

}  // namespace atl::cli
