#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/cli/models/weights.h"
#include "atoll/comm/world.h"
#include "atoll/data/fields.h"
#include "atoll/train/config/config.h"

namespace atl::cli {

/// What `atoll eval --task` was asked for.
struct TaskArguments {
  std::string model;
  std::string base;  ///< of an adapter, in place of the one that it names
  std::string file;
  std::string chat_template;
  std::string out;
  std::string extract;
  std::vector<std::string> stops;
  std::int64_t context = 0;     ///< positions to use; 0: all the model has
  std::int64_t max_tokens = 0;  ///< of an answer; 0: 256
  std::int64_t limit = 0;       ///< items; 0: all
  bool chat = false;
  bool truncate_left = false;
  bool skip_long = false;    ///< leaves out items that are too long, and counts them
  WeightsArguments weights;  ///< how they are kept, and what multiplies with them
  data::Fields fields = {};  ///< what the keys of the file are called
};

/// Has a model answer a task file, and prints the shares of right answers. `config` says how the
/// ranks of `world` share the model. Returns the exit code. Every rank must call it.
int evaluate_task(const TaskArguments& arguments, comm::World& world,
                  const train::TrainConfig& config);

}  // namespace atl::cli
