#include <algorithm>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/cli/inspect.h"
#include "atoll/data/corpus.h"
#include "atoll/train/checkpoint/corpus_options.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

// All is looked at before the first damage is reported, so that one call shows what is left.
struct Report {
  std::string lines;
  std::string damage;

  void add_damage(std::string_view what) {
    if (!damage.empty()) damage += "; also ";
    damage += what;
  }
};

void inspect_checkpoints(const fs::path& checkpoints, Report& report) {
  std::string lines;
  std::string damage;
  for (const std::int64_t step : ckpt::checkpoint_steps(checkpoints)) {
    try {
      lines += inspect_checkpoint(checkpoints / ckpt::checkpoint_name(step));
    } catch (const Error& error) {
      damage += (damage.empty() ? "" : "; also ") + std::string(error.what());
    }
  }
  if (!damage.empty()) {
    report.add_damage(damage + (lines.empty() ? "; no checkpoint of this run is whole"
                                              : "; the other checkpoints are whole, and `atoll "
                                                "train` goes on from the newest of them"));
  } else if (lines.empty()) {
    lines = fmt::format("{}: no checkpoint yet\n", checkpoints.string());
  }
  report.lines += lines;
}

// What the run reads its tokens from; nothing when it does not say so.
std::optional<train::CorpusOptions> options_of(const fs::path& run, Report& report) {
  const fs::path settings = run / "settings.toml";
  if (!path_exists(settings)) return std::nullopt;
  try {
    // Not checked as a recipe is: all keys stand there, also those that exclude each other when
    // given.
    train::TrainConfig config;
    train::make_settings(config).load_toml(settings);
    config.run.dir = run.string();  // it may have been moved
    return train::corpus_options(config);
  } catch (const Error& error) {
    report.lines += fmt::format("{}: {}\n", settings.string(), error.what());
    return std::nullopt;
  }
}

bool is_text_here(const train::CorpusOptions& options) {
  return !options.text.empty() &&
         std::all_of(options.text.begin(), options.text.end(),
                     [](const fs::path& path) { return path_exists(path); });
}

void inspect_shards(const train::CorpusOptions& options, Report& report) {
  std::vector<data::Corpus> corpora;
  for (const fs::path& directory : options.shards) {
    try {
      report.lines += inspect_corpus(directory);
      corpora.emplace_back(directory);
    } catch (const Error& error) {
      report.add_damage(error.what());
    }
  }
  if (corpora.size() != options.shards.size() || options.trained_hash.empty()) return;
  if (train::hash_of(corpora) == options.trained_hash) return;
  report.add_damage("data.shards are not the tokens that the run was trained on");
}

// The tokens that a run makes of data.text itself.
void inspect_made(const fs::path& data, const std::optional<train::CorpusOptions>& options,
                  Report& report) {
  constexpr const char* kRemedy = "; `atoll train` makes the tokens again of data.text";
  if (!data::holds_corpus(data)) {
    if (options) report.lines += fmt::format("{}: no tokens{}\n", data.string(), kRemedy);
    return;
  }
  try {
    const std::string line = inspect_corpus(data);
    const std::string hash = to_hex(data::Corpus(data).hash());
    if (options && !options->trained_hash.empty() && hash != options->trained_hash) {
      report.add_damage(data.string() + " holds other tokens than the run was trained on" +
                        kRemedy);
      return;
    }
    report.lines += line;
  } catch (const Error& error) {
    report.add_damage(data::without_advice(error.what()) + kRemedy);
    return;
  }
  if (!options || train::is_cached(*options)) return;
  report.add_damage(
      fmt::format("the text or a setting of data changed since {} was made, or its corpus.request "
                  "is lost; `atoll train` makes the tokens again, and goes on if they are the same",
                  data.string()));
}

void inspect_tokens(const fs::path& run, Report& report) {
  const std::optional<train::CorpusOptions> options = options_of(run, report);
  if (options && !options->shards.empty()) {
    inspect_shards(*options, report);
    return;
  }
  const bool has_text = options && is_text_here(*options);
  inspect_made(run / "data", has_text ? options : std::nullopt, report);
  if (options && !has_text && !options->text.empty()) {
    report.lines += fmt::format(
        "{}: not here; `atoll train` reads it to see that it is the same, relative to the "
        "directory "
        "it is called in\n",
        options->text.front().string());
  }
}

}  // namespace

bool holds_run(const fs::path& path) {
  return directory_exists(path / "checkpoints") || directory_exists(path / "islands") ||
         (path_exists(path / "settings.toml") && directory_exists(path / "data"));
}

std::string inspect_run(const fs::path& run) {
  Report report;
  if (directory_exists(run / "checkpoints") || !directory_exists(run / "islands")) {
    inspect_checkpoints(run / "checkpoints", report);
    inspect_tokens(run, report);
  }
  std::vector<fs::path> islands;
  if (directory_exists(run / "islands")) {
    for (const fs::directory_entry& entry : fs::directory_iterator(run / "islands")) {
      if (holds_run(entry.path())) islands.push_back(entry.path());
    }
  }
  std::sort(islands.begin(), islands.end());
  for (const fs::path& island : islands) {
    inspect_checkpoints(island / "checkpoints", report);
    inspect_tokens(island, report);
  }
  if (!report.damage.empty()) throw damaged_error("{}", report.damage);
  return report.lines;
}

}  // namespace atl::cli
