#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/serve/batch/step_executor.h"

namespace atl::serve::stages {

/// Which machines have which layers.
struct PipelineOptions {
  std::vector<std::string> stages;  ///< HOST:PORT of each, in the order of the layers
  std::vector<std::string> spares;  ///< that take the place of one that is lost
  std::vector<StepLayers> layers;   ///< as many as `stages`
  /// A directory for wire::load_identity(). Without: plaintext, which only loopback is allowed.
  std::optional<std::filesystem::path> identity;
  nn::ModelConfig config;
  std::string model;            ///< see model_dir::model_identity
  std::string weights = "f32";  ///< as --weights
  StepRoom room;
  std::int64_t vocab_size = 0;  ///< ids below it may be drawn
  std::int64_t groups = 0;      ///< steps under way at once; 0: as many as keep all stages busy
  int heartbeat_ms = 500;
  int timeout_ms = 2000;  ///< a stage that does not answer for so long is lost
};

/// How many steps keep every stage busy: the time of one step through all stages and links, over
/// the time of the slowest stage.
std::int64_t groups_for(const std::vector<double>& stage_seconds, double link_seconds);

/// Takes steps with a pipeline of StageServices. A step goes to the first stage, from each stage to
/// the next, and its result comes back from the last one.
///
/// A stage whose connection breaks, that does not answer heartbeats, or that cannot reach the next
/// one, is lost: a new epoch begins, with a spare in its place or when it is back. All stages then
/// begin with empty caches.
class PipelineExecutor final : public StepExecutor {
 public:
  /// Begins to connect, and returns. Throws Error(kUser) for bad addresses and what wire::Session
  /// throws.
  explicit PipelineExecutor(PipelineOptions options);
  ~PipelineExecutor() override;
  PipelineExecutor(const PipelineExecutor&) = delete;
  PipelineExecutor& operator=(const PipelineExecutor&) = delete;

  /// Returns when all stages have their layers. Throws Error(kUser), with the stage's words, where
  /// one refuses them.
  void wait_until_ready();

  const StepRoom& room() const override;
  const nn::ModelConfig& config() const override;
  /// Of all stages; 0 before they are ready.
  std::size_t bytes_per_step() const override;
  std::int64_t depth() const override;
  bool is_ready() const override;
  std::uint64_t epoch() const override;
  void begin(const StepOrder& order) override;
  std::optional<StepResult> take() override;
  void on_change(std::function<void()> changed) override;
  std::vector<StageStatus> stages() const override;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::serve::stages
