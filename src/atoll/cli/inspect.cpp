#include "atoll/cli/inspect.h"

#include "atoll/base/error.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/ckpt/hf_directory.h"
#include "atoll/cli/diagnosis.h"
#include "atoll/data/corpus.h"
#include "atoll/nn/models/family.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

std::string inspect_checkpoint(const fs::path& path) {
  const ckpt::CheckpointInfo info = ckpt::verify_checkpoint(path);
  std::uint64_t bytes = 0;
  for (const ckpt::ManifestFile& file : info.files) bytes += file.bytes;
  return fmt::format("{}: checkpoint of step {}, {} files, {}: whole\n", path.string(), info.step,
                     info.files.size(), format_bytes(bytes));
}

// All are looked at before the first damage is reported, so that one call shows what is left.
std::string inspect_run(const fs::path& checkpoints) {
  std::string report;
  std::string damage;
  for (const std::int64_t step : ckpt::checkpoint_steps(checkpoints)) {
    try {
      report += inspect_checkpoint(checkpoints / ckpt::checkpoint_name(step));
    } catch (const Error& error) {
      damage += (damage.empty() ? "" : "; also ") + std::string(error.what());
    }
  }
  if (!damage.empty()) {
    throw damaged_error("{}{}", damage,
                        report.empty() ? "; no checkpoint of this run is whole"
                                       : "; the other checkpoints are whole, and `atoll train` "
                                         "goes on from the newest of them");
  }
  return report.empty() ? fmt::format("{}: no checkpoint yet\n", checkpoints.string()) : report;
}

std::string inspect_corpus(const fs::path& path) {
  const data::Corpus corpus(path);
  return fmt::format("{}: corpus of {} training and {} held-out tokens, vocabulary {}: whole\n",
                     path.string(), corpus.train().num_tokens(), corpus.held_out().num_tokens(),
                     corpus.vocab_size());
}

std::string inspect_model(const fs::path& path) {
  const ckpt::HfDirectory directory(path);
  const nn::ModelConfig config =
      nn::parse_config(directory.config_json(), (path / "config.json").string());
  return fmt::format("{}: {} model, {} tensors: complete (it has no hashes to compare)\n",
                     path.string(), config.family, directory.tensor_names().size());
}

}  // namespace

std::string inspect(const fs::path& path) {
  if (!fs::is_directory(path)) {
    throw user_error("{} is not a directory; give a run, a checkpoint, a corpus or a model",
                     path.string());
  }
  if (fs::exists(path / ckpt::kManifestFile)) return inspect_checkpoint(path);
  if (fs::is_directory(path / "checkpoints")) return inspect_run(path / "checkpoints");
  if (data::holds_corpus(path)) return inspect_corpus(path);
  if (fs::exists(path / "config.json")) return inspect_model(path);
  if (ckpt::parse_checkpoint_name(path.filename().string())) return inspect_checkpoint(path);
  throw user_error(
      "{} is neither a run (checkpoints/), a checkpoint (manifest.json), a corpus (corpus.json) "
      "nor "
      "a model (config.json)",
      path.string());
}

}  // namespace atl::cli
