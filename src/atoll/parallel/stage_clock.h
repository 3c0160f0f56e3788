#pragma once

#include <cstddef>
#include <cstdint>

namespace atl::parallel {

/// Which way a pass over the stages goes.
enum class PassKind { kForward, kBackward };

/// When the stages of a micro-batch run: planned memory lives from tick to tick. One tick for each
/// forward, then one for each B and each W, last stage first. An event is a stage's forward or its
/// backward, counted from 0.
struct StageClock {
  std::size_t num_stages = 0;

  std::int64_t forward_tick(std::size_t stage) const { return static_cast<std::int64_t>(stage); }
  std::int64_t input_tick(std::size_t stage) const {
    return static_cast<std::int64_t>(num_stages + 2 * (num_stages - 1 - stage));
  }
  std::int64_t weight_tick(std::size_t stage) const { return input_tick(stage) + 1; }

  std::size_t event(std::size_t stage, PassKind kind) const {
    return kind == PassKind::kForward ? stage : 2 * num_stages - 1 - stage;
  }
  /// The first and the last tick of an event.
  std::int64_t first_tick(std::size_t event) const {
    return event < num_stages ? forward_tick(event) : input_tick(2 * num_stages - 1 - event);
  }
  std::int64_t last_tick(std::size_t event) const {
    return event < num_stages ? forward_tick(event) : weight_tick(2 * num_stages - 1 - event);
  }
};

}  // namespace atl::parallel
