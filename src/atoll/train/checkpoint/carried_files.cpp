#include "atoll/train/checkpoint/carried_files.h"

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/model_dir/chat.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/text/tokenizer_config.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

// Makes a token end what the model says, in atoll and in transformers.
void stop_at(std::int32_t token, const model_dir::ModelPath& base, CarriedFiles& carried) {
  const auto of_config = base.empty()
                             ? std::vector<std::int64_t>()
                             : text::read_eos_ids(model_dir::base_directory(base) / "config.json");
  const auto at = carried.find("generation_config.json");
  const std::string old = at == carried.end() ? "" : at->second;
  const std::string config = model_dir::with_stop_token(old, token, of_config);
  if (config != old) carried["generation_config.json"] = config;
}

// A chat model stops where its template ends an answer.
void stop_at_end_of_turn(const fs::path& given, const model_dir::ModelPath& base,
                         const Tokenizer& tokenizer, bool warns, CarriedFiles& carried) {
  const bool has_own =
      carried.contains("chat_template.jinja") ||
      (carried.contains("tokenizer_config.json") &&
       carried["tokenizer_config.json"].find("\"chat_template\"") != std::string::npos);
  if (given.empty() && (!has_own || base.empty())) return;
  model_dir::EndOfTurn end;
  try {
    end = model_dir::end_of_turn(model_dir::find_chat_template(given, base, tokenizer), tokenizer);
  } catch (const Error& error) {
    // Whoever renders messages with it ends with this error; other data has no need of it.
    if (warns) log::warning("where answers end is not known: {}", error.what());
    return;
  }
  if (end.token) {
    stop_at(*end.token, base, carried);
  } else if (warns) {
    log::warning("{}", model_dir::problem_of(end));
  }
}

}  // namespace

CarriedFiles carried_files(const TrainConfig& config, const Tokenizer& tokenizer,
                           const nn::ModelConfig& model, const model_dir::ModelPath& base,
                           bool warns) {
  CarriedFiles carried;
  if (config.model.from.empty()) {
    carried = new_carried(tokenizer, model);
  } else {
    carried = read_carried(base);
    if (!carry_tokenizer(tokenizer, model, carried) && warns) {
      log::warning(
          "the tokens were made with another tokenizer than the one in {}; checkpoints have the "
          "former, and the model must learn its tokens anew",
          base.string());
    }
  }
  const fs::path chat_template = config.data.chat_template;
  if (file_exists(chat_template)) {
    carried["chat_template.jinja"] = read_file(chat_template);
  } else if (const auto named = model_dir::named_chat_template(chat_template, base)) {
    carried["chat_template.jinja"] = named->source;
  }
  // What the documents end with ends a text.
  if (const auto end = tokenizer.end_of_text()) stop_at(*end, base, carried);
  stop_at_end_of_turn(chat_template, base, tokenizer, warns, carried);
  return carried;
}

}  // namespace atl::train
