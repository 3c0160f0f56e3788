#include "atoll/train/loop/settled_by_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/data/input_format.h"
#include "atoll/data/tokenize.h"
#include "atoll/hub/dataset.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/checkpoint/corpus_options.h"
#include "atoll/train/config/preference.h"
#include "atoll/train/corpus/missing_text.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStream = "\"stream\"";  // as TOML text

// The packing of a run that has checkpoints, as TOML text; nothing for a new run.
std::optional<std::string> packing_of_run(const TrainConfig& config) {
  const fs::path checkpoints = fs::path(config.run.dir) / "checkpoints";
  const std::vector<std::int64_t> steps = ckpt::checkpoint_steps(checkpoints);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      const Position position = read_position(checkpoints / ckpt::checkpoint_name(*step));
      for (const auto& [key, value] : position.settings) {
        if (key == "data.packing") return value;
      }
    } catch (const Error&) {
      continue;  // whoever loads it says that it is damaged
    }
  }
  return std::nullopt;
}

// Whether a file may have rows of prompts or messages.
bool has_rows(const TrainConfig& config) {
  if (!config.data.shards.empty()) return true;  // their manifest says it, at no cost
  const std::vector<fs::path> text = hub::local_texts(
      {config.data.text.begin(), config.data.text.end()}, data::is_searched_for_by_name);
  const std::vector<fs::path> files = data::find_text_files(text).files;
  return std::any_of(files.begin(), files.end(),
                     [](const fs::path& path) { return data::has_rows(data::input_format(path)); });
}

bool has_loss_mask(const PreparedCorpus& corpus) {
  return std::any_of(corpus.corpora.begin(), corpus.corpora.end(),
                     [](const data::Corpus& each) { return each.train().has_mask(); });
}

// Whether data.packing is to be chosen here.
bool is_packing_open(const Recipe& recipe) {
  const TrainConfig& config = recipe.config();
  return recipe.settings().find("data.packing").is_default() && !config.train.has_preferences() &&
         config.island.coordinator.empty() && config.sync.mode != "ps";
}

// Sets it unless another setting does not go with it.
void pack_documents(Recipe& recipe, bool tells) {
  try {
    recipe.settle("data.packing", "\"documents\"");
  } catch (const Error& error) {
    recipe.settle("data.packing", kStream);
    if (tells) {
      log::warning(
          "prompts and conversations are cut and mixed at the edges of sequences "
          "(data.packing = stream), because {}",
          error.what());
    }
    return;
  }
  if (!tells) return;
  log::info(
      "the data has prompts or conversations: whole ones are packed into sequences, none of which "
      "sees another (data.packing = documents)");
}

void set_steps(Recipe& recipe, const PreparedCorpus& corpus, bool tells) {
  const TrainConfig& config = recipe.config();
  const std::int64_t steps = steps_of_epochs(config, corpus);
  if (!recipe.settings().find("train.steps").is_default() && config.train.steps != steps) {
    throw user_error(
        "train.epochs = {:g} are {} of this data, and train.steps is {}; leave one out",
        config.train.epochs, counted(steps, "step"), config.train.steps);
  }
  if (tells) log::info("train.epochs = {:g}: {}", config.train.epochs, counted(steps, "step"));
  recipe.settle("train.steps", std::to_string(steps));
}

}  // namespace

std::int64_t steps_of_epochs(const TrainConfig& config, const PreparedCorpus& corpus) {
  const TrainSamples samples(corpus, config.data.weights,
                             static_cast<std::uint64_t>(config.run.seed), config.train.context,
                             packing_of(config));
  const double whole = std::floor(config.train.epochs);
  double sum = 0;
  // Epochs of packed documents differ by a few samples, and those of windows not at all.
  constexpr double kCounted = 100;
  std::int64_t last = 0;
  for (std::int64_t epoch = 0; static_cast<double>(epoch) < std::min(whole, kCounted); ++epoch) {
    last = samples.get().samples_in(epoch);
    sum += static_cast<double>(last);
  }
  if (whole > kCounted) sum += (whole - kCounted) * static_cast<double>(last);
  if (const double part = config.train.epochs - whole; part > 0) {
    const double next =
        whole > kCounted
            ? static_cast<double>(last)
            : static_cast<double>(samples.get().samples_in(static_cast<std::int64_t>(whole)));
    sum += part * next;
  }
  const double steps = std::ceil(sum / static_cast<double>(config.train.batch_size));
  return std::max<std::int64_t>(1, std::llround(steps));
}

void settle_by_data(Recipe& recipe, bool tells) {
  const bool has_epochs = recipe.config().train.epochs > 0;
  bool is_open = is_packing_open(recipe);
  const bool has_data = !recipe.config().data.shards.empty() || !recipe.config().data.text.empty();
  if (!has_data || (!has_epochs && !is_open)) return;
  require_texts(recipe.config(), recipe.settings());
  if (is_open) {
    const std::optional<std::string> before = packing_of_run(recipe.config());
    is_open = !before && has_rows(recipe.config());
    if (before && *before != kStream) recipe.settle("data.packing", *before);
  }
  if (!has_epochs && !is_open) return;
  const PreparedCorpus corpus = prepare_corpus(corpus_options(recipe.config()));
  if (is_open && has_loss_mask(corpus)) pack_documents(recipe, tells);
  if (has_epochs) set_steps(recipe, corpus, tells);
}

}  // namespace atl::train
