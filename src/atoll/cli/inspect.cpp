#include "atoll/cli/inspect.h"

#include <algorithm>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/quantity.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/cli/diagnosis.h"
#include "atoll/data/corpus.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/nn/models/family.h"

namespace atl::cli {

namespace fs = std::filesystem;

std::string inspect_checkpoint(const fs::path& path) {
  const ckpt::CheckpointInfo info = ckpt::verify_checkpoint(path);
  std::uint64_t bytes = 0;
  for (const ckpt::ManifestFile& file : info.files) bytes += file.bytes;
  return fmt::format("{}: checkpoint of step {}, {}, {}: whole\n", path.string(), info.step,
                     counted(std::ssize(info.files), "file"), format_bytes(bytes));
}

std::string inspect_corpus(const fs::path& path) {
  const data::Corpus corpus(path);
  return fmt::format("{}: corpus of {} training and {} held-out tokens, vocabulary {}: whole\n",
                     path.string(), corpus.train().num_tokens(), corpus.held_out().num_tokens(),
                     corpus.vocab_size());
}

namespace {

std::string inspect_model(const fs::path& path) {
  const ckpt::HfDirectory directory(path);
  const nn::ModelConfig config =
      nn::parse_config(directory.config_json(), (path / "config.json").string());
  return fmt::format("{}: {} model, {}: complete (it has no hashes to compare)\n", path.string(),
                     config.family, counted(std::ssize(directory.tensor_names()), "tensor"));
}

}  // namespace

std::string inspect(const fs::path& path) {
  if (!path_exists(path)) {
    throw user_error("there is no directory {}{}", path.string(), advice_for_absent(path));
  }
  if (!directory_exists(path)) {
    throw user_error("{} is not a directory; give a run, a checkpoint, a corpus or a model",
                     path.string());
  }
  if (path_exists(path / ckpt::kManifestFile)) return inspect_checkpoint(path);
  if (holds_run(path)) return inspect_run(path);
  if (data::holds_corpus(path)) return inspect_corpus(path);
  if (path_exists(path / "config.json")) return inspect_model(path);
  if (ckpt::parse_checkpoint_name(path.filename().string())) return inspect_checkpoint(path);
  throw user_error(
      "{} is neither a run (checkpoints/), a checkpoint (manifest.json), a corpus (corpus.json) "
      "nor a model (config.json){}",
      path.string(), model_dir::advice_for_parent(path));
}

}  // namespace atl::cli
