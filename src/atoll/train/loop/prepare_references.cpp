#include "atoll/train/loop/prepare_references.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/train/checkpoint/corpus_options.h"
#include "atoll/train/config/preference.h"
#include "atoll/train/step/pair_evaluation.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFileName = "reference.bin";

// Of the files of the model that the run begins with; empty where they are in several directories.
std::string hash_of_model(const fs::path& model) {
  if (model_dir::holds_adapter(model)) return "";
  std::vector<fs::path> files;
  if (file_exists(model)) files.push_back(model);
  if (directory_exists(model)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(model)) {
      const fs::path ending = entry.path().extension();
      const bool is_part = ending == ".safetensors" || ending == ".gguf" || ending == ".bin" ||
                           entry.path().filename() == "config.json";
      if (is_part && entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::string all;
  for (const fs::path& path : files) {
    const MappedFile file(path);
    all += to_hex(hash_bytes(file.bytes().data(), file.bytes().size()));
  }
  return to_hex(hash_bytes(all.data(), all.size()));
}

// Of which model and data the references are; empty: nobody can tell.
std::string key_of(TrainRun& run) {
  const std::string model = hash_of_model(run.model->base());
  if (model.empty()) return "";
  return fmt::format("model {} data {} context {} dtype {} fp8 {} held as {} seed {}", model,
                     run.corpus->hash(), run.config.train.context, run.config.train.dtype,
                     run.config.train.fp8, run.config.model.held_as, run.config.run.seed);
}

data::PairSamples in_order(const TrainRun& run, const data::TokenSource& source) {
  return {source, 0, run.config.train.context, data::PairSamples::Order::kAsInSource};
}

References compute(TrainRun& run) {
  const auto start = std::chrono::steady_clock::now();
  run.ranks().world().agree([&] { run.model->initialise(); });
  const data::Corpus& corpus = run.corpus->corpora.front();
  References references;
  TrainState& state = run.state();
  references.train = score_answers(state, run.model->stream(), in_order(run, corpus.train()));
  if (run.corpus->has_held_out()) {
    references.held_out =
        score_answers(state, run.model->stream(), in_order(run, corpus.held_out()));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (run.is_lead()) {
    const std::size_t answers = references.train.size() + references.held_out.size();
    log::info("reference: the log-probabilities of {}, in {:.1f} s",
              counted(static_cast<std::int64_t>(answers), "answer"), seconds.count());
  }
  return references;
}

// Whether the lead's file has what the run needs, as all ranks are told.
bool is_stored(TrainRun& run, const fs::path& path, const std::string& key,
               const std::string& trained_hash) {
  std::int64_t found = 0;
  run.ranks().world().agree([&] {
    if (!run.is_lead()) return;
    const std::optional<StoredReferences> stored = read_references(path);
    if (!stored) return;
    found = trained_hash.empty() ? (!key.empty() && stored->key == key)
                                 : stored->references.hash() == trained_hash;
  });
  run.ranks().group().broadcast({&found, {Dtype::kI64, {1}}}, 0);
  return found != 0;
}

// The facts of the samples that the present batches are made of.
void give_facts(TrainRun& run) {
  const auto& samples = dynamic_cast<const data::PairSamples&>(run.batches->samples());
  run.model->facts().of = facts_of(samples, run.model->references().train);
}

void read_stored(TrainRun& run, const fs::path& path) {
  std::optional<StoredReferences> stored = read_references(path);
  if (!stored) throw user_error("{} cannot be read by this rank", path.string());
  run.model->compare_with(std::move(stored->references));
}

}  // namespace

void reopen_references(TrainRun& run) {
  if (!run.config.train.has_preferences()) return;
  const bool is_new = run.model->references().train.empty();
  if (needs_reference(run.config) && is_new) {
    read_stored(run, corpus_options(run.config).cache / kFileName);
  }
  give_facts(run);
}

void prepare_references(TrainRun& run, const std::string& trained_hash) {
  if (!run.config.train.has_preferences()) return;
  if (!needs_reference(run.config)) return give_facts(run);
  const fs::path path = corpus_options(run.config).cache / kFileName;
  std::string key;
  run.ranks().world().agree([&] {
    if (run.is_lead()) key = key_of(run);
  });
  if (is_stored(run, path, key, trained_hash)) {
    run.ranks().world().agree([&] { read_stored(run, path); });
  } else {
    run.model->facts().of = {};
    References references = compute(run);
    run.ranks().world().agree([&] {
      if (!trained_hash.empty() && references.hash() != trained_hash) {
        throw user_error(
            "{} is gone or damaged, and model.from and this layout give other log-probabilities "
            "than those that the run was trained with; bring the file back, or choose another "
            "run.dir",
            path.string());
      }
      if (run.is_lead()) write_references(path, key, references);
    });
    run.model->compare_with(std::move(references));
  }
  give_facts(run);
}

}  // namespace atl::train
