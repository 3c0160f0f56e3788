#include "atoll/model_dir/exported_tokenizer.h"

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/json.h"
#include "atoll/text/sentence_piece/sentence_piece_json.h"
#include "atoll/text/tokenizer.h"

namespace atl::model_dir {

namespace fs = std::filesystem;

namespace {

// That of the directory, for a class that takes a tokenizer.json as it is.
std::string config_of(const fs::path& directory) {
  const fs::path path = directory / "tokenizer_config.json";
  auto config = nlohmann::ordered_json::object();
  if (path_exists(path)) {
    config = parse_ordered_json(read_file(path), path.string());
    if (!config.is_object()) throw damaged_error("{} is not a JSON object", path.string());
  }
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return config.dump(2) + "\n";
}

}  // namespace

ExportedTokenizer exported_tokenizer(const fs::path& checkpoint) {
  const fs::path model = checkpoint / "tokenizer.model";
  if (!path_exists(model) || path_exists(checkpoint / "tokenizer.json")) return {};
  const std::string obstacle = text::obstacle_to_json(
      text::parse_sentence_piece(read_file(model, kMaxListBytes), model.string()));
  if (!obstacle.empty()) {
    return {
        .files = {},
        .note = fmt::format("transformers 5 gives other ids than the run was trained with, for its "
                            "tokenizer.model cannot be said as a tokenizer.json ({}); encode with "
                            "the sentencepiece library",
                            obstacle)};
  }
  return {.files = {{"tokenizer.json", Tokenizer::load(model).to_json()},
                    {"tokenizer_config.json", config_of(checkpoint)}},
          .note = ""};
}

}  // namespace atl::model_dir
