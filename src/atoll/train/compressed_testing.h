#pragma once

// What the tests of compressed data parallel share: ranks that train a small model so.

#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>

#include "atoll/ckpt/testing.h"
#include "atoll/comm/world.h"
#include "atoll/train/checkpoint/checkpoint_layouts_testing.h"

namespace atl::train::testing {

/// Ranks that send gradients, and values, in such a way.
inline Variant compressed(const std::string& how, const std::string& weights = "none") {
  Variant variant;
  variant.name = how;
  variant.compress = how;
  variant.compress_weights = weights;
  return variant;
}

/// 1-bit Adam after so many steps of plain Adam.
inline Variant onebit(int warmup) {
  Variant variant = compressed("onebit_adam");
  variant.compress_warmup = warmup / 1000.0;
  return variant;
}

/// 0/1 Adam whose second moment stays after so many steps, with the learning rate of the tests.
inline Variant zeroone(int warmup, int local_steps = 16) {
  Variant variant = compressed("zeroone_adam");
  variant.compress_warmup = warmup / 1000.0;
  variant.compress_local_steps = local_steps;
  return variant;
}

/// The values that the ranks of a layout compute with, whole, and the masters where these are
/// others.
inline std::string whole_values(RankOf& rank) {
  const Spec flat = rank.state.store().flat();
  std::string all(flat.bytes(), '\0');
  const parallel::ElementRange range = {0, flat.shape.num_elements()};
  comm::Group& shard = *rank.state.shard_group();
  for (int reader = 0; reader < shard.size(); ++reader) {
    const bool reads = shard.rank() == reader;
    rank.state.store().read_whole(std::span(&range, 1), reader,
                                  reads ? Tensor(all.data(), flat) : Tensor());
  }
  return all;
}

/// Ranks as threads of the test, and a directory for their checkpoints.
class Compressed : public ::testing::Test {
 protected:
  void on_ranks(const Variant& variant, const Layout& layout,
                const std::function<void(RankOf& rank, int number)>& body) {
    comm::run_threads(layout.ranks(), {.timeout_s = 60}, [&](comm::World& world) {
      RankOf rank(world, variant, layout);
      body(rank, world.rank());
    });
  }

  // Whole values after some steps; the same on all ranks. `before`: what each does first.
  std::string trained(const Variant& variant, const Layout& layout, int steps,
                      const std::function<void(RankOf& rank)>& before = nullptr) {
    std::mutex mutex;
    std::string values;
    on_ranks(variant, layout, [&](RankOf& rank, int) {
      if (before) before(rank);
      for (int i = 0; i < steps; ++i) EXPECT_TRUE(rank.step(i).taken());
      const std::string mine = whole_values(rank);
      EXPECT_TRUE(replicas_that_differ(rank.state).empty());
      const std::lock_guard lock(mutex);
      if (values.empty()) values = mine;
      EXPECT_TRUE(mine == values) << variant.name << " in " << layout.name();
    });
    return values;
  }

  std::filesystem::path root(const std::string& name) const { return directory_ / name; }

  ckpt::testing::TemporaryDirectory directory_{"compressed",
                                               ckpt::testing::memory_directory_path()};
};

}  // namespace atl::train::testing
