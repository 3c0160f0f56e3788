#pragma once

// The adapters of a server: those of its command line, and those that come while it runs.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/model_dir/model_path.h"
#include "atoll/nn/model.h"
#include "atoll/serve/api/serving.h"
#include "atoll/serve/batch/batch_generator.h"

namespace atl::cli {

/// Adapters of a model of that shape, each as NAME=DIRECTORY, where the directory may be a run.
/// Throws Error(kUser) for another form, a name that stands there twice, a directory that is no
/// adapter, and as model_dir::ServedAdapter.
std::vector<serve::StepAdapter> open_adapters(const std::vector<std::string>& words,
                                              const nn::ModelConfig& config);

/// Which checkpoint of a run a model is, "step-00000060"; empty where `argument`, which named it,
/// is no run.
std::string checkpoint_of(const std::filesystem::path& argument, const model_dir::ModelPath& path);

/// How many adapters there may be, and of which rank.
struct AdapterBounds {
  std::int64_t max_adapters = 0;
  std::int64_t rank = 0;  ///< of the greatest Linear, all parts that it has in files together
};

/// Bounds for these adapters and, where `max_adapters` is not 0, for others that come later, whose
/// factors have up to `rank` each. Throws Error(kUser) where there are more than `max_adapters`.
AdapterBounds adapter_bounds(const std::vector<serve::StepAdapter>& adapters,
                             std::int64_t max_adapters, std::int64_t rank,
                             const nn::ModelConfig& config);

/// The most bytes that one adapter of a model of that shape takes, with factors of that rank.
std::size_t adapter_bytes(const nn::ModelConfig& config, std::int64_t rank);

/// Loads adapters that lie in one directory.
class AdapterDirectory final : public serve::api::AdapterLoader {
 public:
  /// Of a directory that is there. `generator` must outlive this.
  AdapterDirectory(const std::filesystem::path& directory, nn::ModelConfig config,
                   serve::BatchGenerator& generator);

  /// `path`: absolute, or from the directory on; links may not lead out of it.
  void load(const std::string& name, const std::string& path) override;
  bool unload(const std::string& name) override;

 private:
  std::filesystem::path inside(const std::string& path) const;

  std::filesystem::path directory_;  // without links
  nn::ModelConfig config_;
  serve::BatchGenerator& generator_;
};

}  // namespace atl::cli
