#pragma once

// Memory planned before the first step. Whoever needs memory says so by name, with the span of
// ticks in which it lives; the plan places everything once, `atoll plan` prints it, and the run
// takes exactly that from the device.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/device/device.h"
#include "atoll/tensor/tensor.h"

namespace atl {

/// Every placement starts on a cache line, and wide vectors never straddle two.
constexpr std::size_t kArenaAlignment = 64;

/// `bytes` rounded up to kArenaAlignment.
constexpr std::size_t align_up(std::size_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

/// Ticks in a row, both ends included.
struct TickSpan {
  std::int64_t first = 0;
  std::int64_t last = 0;

  bool operator==(const TickSpan&) const = default;
};

/// A request for memory and, after MemoryPlan::place, its offset.
struct Placement {
  std::string name;   ///< What it is for: "blocks.0 kept 2".
  std::string group;  ///< What `atoll plan` adds it to: "parameters", "activations", ...
  std::size_t bytes = 0;
  std::int64_t first_tick = 0;  ///< It lives in [first_tick, last_tick], both included.
  std::int64_t last_tick = 0;
  std::size_t offset = 0;
  /// When it lives within these ticks, ascending; empty: all the time.
  std::vector<TickSpan> spans = {};
};

/// A pure plan: requests with lifetimes in, offsets out. Touches no memory.
class MemoryPlan {
 public:
  static constexpr std::int64_t kForever = INT64_MAX;

  /// Asks for memory that lives in [first_tick, last_tick]; returns the request's number.
  int request(std::string name, std::string group, std::size_t bytes, std::int64_t first_tick,
              std::int64_t last_tick);
  /// Asks for memory that lives in these spans, ascending and apart, and between them may be
  /// something else; its content is lost there.
  int request(std::string name, std::string group, std::size_t bytes, std::vector<TickSpan> spans);
  /// Asks for memory that lives as long as the arena.
  int request_forever(std::string name, std::string group, std::size_t bytes) {
    return request(std::move(name), std::move(group), bytes, 0, kForever);
  }
  /// Gives every request an offset such that two that live at the same tick never overlap: larger
  /// ones first, each at the lowest offset that is free for its whole life.
  void place();

  const std::vector<Placement>& placements() const { return placements_; }
  /// What the arena will take; valid after place().
  std::size_t total_bytes() const { return total_bytes_; }
  /// Bytes of all requests of `group` live at one tick, at the worst tick.
  std::size_t peak_bytes(const std::string& group) const;
  /// The same of all groups: no placement needs less.
  std::size_t peak_bytes() const;

 private:
  std::vector<Placement> placements_;
  std::size_t total_bytes_ = 0;
};

/// The memory of `buffer`, which it must fit into, seen as `spec`.
Tensor tensor_in(const Buffer& buffer, Spec spec);

/// The memory of one rank: one Buffer, laid out by a MemoryPlan.
class Arena {
 public:
  /// Takes plan.total_bytes() from `device`; the plan must be placed. Memory starts zeroed.
  Arena(Device& device, const MemoryPlan& plan);

  /// The memory of request `number` seen as `spec`, which must fit into it.
  Tensor tensor(int number, Spec spec) const;
  /// The raw memory of request `number`.
  std::byte* data(int number) const;
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  std::vector<Placement> placements_;
  Buffer buffer_;
};

}  // namespace atl
