#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace atl::cli {

/// What `atoll eval --task` was asked for.
struct TaskArguments {
  std::string model;
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
  int threads = 0;
};

/// Has a model answer a task file, and prints the shares of right answers. Returns the exit code.
int evaluate_task(const TaskArguments& arguments);

}  // namespace atl::cli
