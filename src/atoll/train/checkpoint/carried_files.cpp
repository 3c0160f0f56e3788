#include "atoll/train/checkpoint/carried_files.h"

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/json.h"
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

// The files of a base model whose tokenizer has got more special tokens keep what else they say.
void carry_more_tokens(const TrainConfig& config, const Tokenizer& tokenizer,
                       const model_dir::ModelPath& base, CarriedFiles& carried) {
  if (config.data.special_tokens.empty() || !config.data.tokenizer.empty()) return;
  const Tokenizer own = model_dir::load_tokenizer(base);
  const Tokenizer more = own.with_special_tokens(config.data.special_tokens);
  if (more.file_content() != tokenizer.file_content()) return;
  carried[more.file_name()] = more.file_content();
  if (own.file_name() == more.file_name()) return;
  // A tokenizer.json takes the place of the tokenizer.model, and its class takes it as it is.
  carried.erase(own.file_name());
  auto json = nlohmann::ordered_json::object();
  std::string& text = carried["tokenizer_config.json"];
  if (!text.empty()) json = parse_ordered_json(text, "tokenizer_config.json");
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  text = json.dump(2) + "\n";
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
    carry_more_tokens(config, tokenizer, base, carried);
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
