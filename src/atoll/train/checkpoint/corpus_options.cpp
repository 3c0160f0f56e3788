#include "atoll/train/checkpoint/corpus_options.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/data/input_format.h"
#include "atoll/hub/dataset.h"
#include "atoll/hub/model.h"
#include "atoll/model_dir/chat.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/config/preference.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

// Here rather than where it is first needed: beside shards, or texts without messages, nothing else
// would look.
void check_chat_template(const fs::path& path, const model_dir::ModelPath& model) {
  if (path.empty() || file_exists(path)) return;
  if (model_dir::named_chat_template(path, model)) return;
  throw user_error("data.chat_template is {}, {}", path.string(),
                   directory_exists(path)
                       ? "a directory; name the Jinja file in it"
                       : "and there is no such file, nor has the model a template of that name");
}

// The corpus that the newest checkpoint was trained on; empty when none says so.
std::string trained_corpus(const fs::path& checkpoints, const std::vector<std::int64_t>& steps) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      return read_position(checkpoints / ckpt::checkpoint_name(*step)).corpus_hash;
    } catch (const Error&) {
      continue;  // whoever loads it says that it is damaged
    }
  }
  return "";
}

}  // namespace

CorpusOptions corpus_options(const TrainConfig& config) {
  CorpusOptions options;
  options.shards.assign(config.data.shards.begin(), config.data.shards.end());
  options.text = hub::local_texts({config.data.text.begin(), config.data.text.end()},
                                  data::is_searched_for_by_name);
  options.tokenizer = hub::local_tokenizer(config.data.tokenizer);
  if (options.tokenizer.empty() && !config.model.from.empty()) {
    options.tokenizer =
        model_dir::tokenizer_directory(model_dir::find_model(config.model.from, config.model.base));
  }
  options.new_tokenizer = config.data.new_tokenizer;
  options.vocab_size = config.data.vocab_size;
  options.special_tokens = config.data.special_tokens;
  options.chat_template = config.data.chat_template;
  const bool is_file = file_exists(options.tokenizer);
  check_chat_template(options.chat_template,
                      is_file ? options.tokenizer.parent_path() : options.tokenizer);
  options.chat = {.last_only = config.data.chat_train == "last",
                  .keep_thinking = config.data.chat_keep_thinking,
                  .literal_content = config.data.chat_literal_content};
  options.fields = config.data.fields;
  options.pairs = pair_kind(config);
  options.shard_cache = config.data.cache_dir;
  options.shard_cache_bytes = static_cast<std::uint64_t>(config.data.cache_gib * 0x1p30);
  options.held_out = config.data.held_out;
  options.documents = config.data.documents;
  options.cache = fs::path(config.run.dir) / "data";
  const fs::path checkpoints = fs::path(config.run.dir) / "checkpoints";
  const std::vector<std::int64_t> steps = ckpt::checkpoint_steps(checkpoints);
  options.cache_is_final = !steps.empty();
  options.trained_hash = trained_corpus(checkpoints, steps);
  return options;
}

void require_held_out(const TrainConfig& config, const PreparedCorpus& corpus) {
  if (config.eval.every == 0 || corpus.has_held_out()) return;
  throw user_error("eval.every is {} and no text is held out; set data.held_out or eval.every=0",
                   config.eval.every);
}

}  // namespace atl::train
