#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/cli/argument_parser.h"

namespace atl::cli {

/// What `atoll plan --serve` is told beside the model.
struct ServeFlags {
  bool serve = false;  ///< --serve
  std::int64_t stages = 1;
  std::string layers, weights = "f32", link = "1Gbit/s,1ms";
  std::int64_t slots = 8;
  std::int64_t context = 0;  ///< 0: all positions of the model
};

/// Declares them on `parser`. `others` are options that mean nothing beside --serve.
void add_serve_flags(ArgumentParser& parser, ServeFlags& flags,
                     const std::vector<Argument>& others);

/// Prints what serving a model takes and gives on machines like this one; returns the exit code.
int print_serving(const std::string& model, const ServeFlags& flags);

}  // namespace atl::cli
