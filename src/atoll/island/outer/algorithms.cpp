#include "atoll/island/outer/algorithms.h"

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::island {

namespace {

Error unknown_algorithm(const std::string& name) {
  return user_error(
      "there is no algorithm '{}' between islands: choose diloco, streaming, eager, async or "
      "gossip",
      name);
}

// The scaling laws tuned it for 1, 2, 4 and 8 islands; in between the smaller number's is taken.
double default_lr(int num_islands) {
  if (num_islands <= 1) return 0.4;
  return num_islands < 8 ? 0.6 : 0.8;
}

// The most of which each has about three layers, and that divide H.
int default_fragments(std::int64_t inner_steps, int num_layers) {
  int fragments = std::max(1, num_layers / 3);
  while (inner_steps % fragments != 0) --fragments;
  return fragments;
}

}  // namespace

OuterOptions default_outer_options(int num_islands, const std::string& algorithm, int num_layers,
                                   const std::string& codec) {
  OuterOptions options;
  options.algorithm = algorithm;
  options.codec = codec;
  options.optimizer.lr = default_lr(num_islands);
  if (codec == "topk" || codec.starts_with("topk:")) {
    options.optimizer.kind = "sgd";
    options.optimizer.lr = 1;
    options.optimizer.momentum = 0;
  }
  if (algorithm == "streaming") {
    constexpr std::int64_t kOverlap = 5;
    options.fragments = default_fragments(options.inner_steps, num_layers);
    options.overlap = std::min(kOverlap, options.inner_steps / options.fragments);
    options.merge = 0.5;
  } else if (algorithm == "async") {
    options.optimizer.kind = "delayed_nesterov";
    options.optimizer.islands = std::max(1, num_islands);
  } else if (algorithm != "diloco" && algorithm != "eager" && algorithm != "gossip") {
    throw unknown_algorithm(algorithm);
  }
  return options;
}

std::unique_ptr<OuterAlgorithm> make_outer_algorithm(const OuterOptions& options,
                                                     const OuterOptimizer& optimizer) {
  if (options.inner_steps < 1) {
    throw user_error("inner_steps is {}: it must be at least 1", options.inner_steps);
  }
  if (options.algorithm == "diloco") return make_diloco(options);
  if (options.algorithm == "streaming") return make_streaming(options);
  if (options.algorithm == "eager") return make_eager(options, optimizer);
  if (options.algorithm == "async") return make_async(options);
  if (options.algorithm == "gossip") return make_gossip(options);
  throw unknown_algorithm(options.algorithm);
}

}  // namespace atl::island
