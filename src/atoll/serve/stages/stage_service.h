#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "atoll/serve/batch/step_model.h"
#include "atoll/serve/stages/messages.h"

namespace atl::serve::stages {

/// What a stage is made of.
struct StageOptions {
  std::string listen = "127.0.0.1:0";  ///< HOST:PORT; port 0 picks one
  /// A directory for wire::load_identity(). Without: plaintext, which only loopback is allowed.
  std::optional<std::filesystem::path> identity;
  std::string model;       ///< see Assignment::model
  nn::ModelConfig config;  ///< of the whole model
  /// Reads the layers of an assignment. What it throws refuses the assignment.
  std::function<std::unique_ptr<StepModel>(const Assignment& assignment)> open;
};

/// A machine that has some layers of a model, for one server at a time. The server says which
/// layers and who has the next ones; steps come from it or from the stage before, and go on to the
/// next stage, the last stage's results to the server. Layers that were read stay until others are
/// asked for.
class StageService {
 public:
  /// Listens when it returns. Throws as wire::Server.
  explicit StageService(StageOptions options);
  ~StageService();
  StageService(const StageService&) = delete;
  StageService& operator=(const StageService&) = delete;

  /// HOST:PORT with the port that was picked.
  std::string address() const;
  /// Of steps computed since the start.
  std::int64_t num_steps() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::serve::stages
