// A bit that differs between replicas is found, wherever it is.

#include <gtest/gtest.h>

#include "atoll/comm/mesh.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

struct Layout {
  int zero = 0;
  int shard = 1;
  int replicas = 1;
};

class Replicas : public ::testing::TestWithParam<Layout> {};

StateOptions options_of(const Layout& layout, int rank) {
  StateOptions options = {.model = testing::tiny_model("llama"), .micro_batch = 2, .context = 16};
  options.data_parallel = {.zero = static_cast<parallel::Zero>(layout.zero),
                           .num_ranks = layout.shard,
                           .rank = rank % layout.shard,
                           .replicas = layout.replicas,
                           .bucket_bytes = 4 << 10};
  return options;
}

TEST_P(Replicas, AFlippedBitIsFoundOnEveryRankAndNamesTwo) {
  const Layout& layout = GetParam();
  comm::run_threads(layout.shard * layout.replicas, {.timeout_s = 60}, [&](comm::World& world) {
    comm::Mesh mesh(world, {{"replicate", layout.replicas, "dp"}, {"shard", layout.shard, "dp"}});
    testing::Bench bench(options_of(layout, world.rank()), 1);
    bench.state.connect(world.all(), mesh.group("shard"),
                        layout.replicas > 1 ? &mesh.group("replicate") : nullptr);
    EXPECT_TRUE(replicas_that_differ(bench.state).empty());
    const Tensor values = bench.state.store().values();
    const int odd = world.size() - 1;
    for (const std::size_t byte : {std::size_t{0}, values.bytes() / 2, values.bytes() - 1}) {
      auto* bytes = static_cast<unsigned char*>(values.raw());
      if (world.rank() == odd) bytes[byte] ^= 0x10;
      const int same = layout.zero == 3 ? odd % layout.shard : 0;
      EXPECT_EQ(replicas_that_differ(bench.state), (std::vector<int>{same, odd})) << byte;
      if (world.rank() == odd) bytes[byte] ^= 0x10;
    }
    EXPECT_TRUE(replicas_that_differ(bench.state).empty());
  });
}

TEST(ReplicasOfParts, ABitOfWhatAllHoldIsFoundOnEveryRank) {
  comm::run_threads(4, {.timeout_s = 60}, [&](comm::World& world) {
    comm::Mesh mesh(world, {{"dp", 2}, {"tp", 2}});
    StateOptions options = options_of({0, 2, 1}, world.rank() / 2);
    options.build.tensor_size = 2;
    options.build.tensor_rank = world.rank() % 2;
    testing::Bench bench(options, 1);
    const nn::Axis& copies = *bench.state.model().kv_copies;
    ASSERT_EQ(copies.size, 1);
    const auto alone = world.group({world.rank()}, "kv");
    bench.state.connect(mesh.group("dp"), mesh.group("dp"), nullptr);
    bench.state.connect_tensor(world.all(), mesh.group("tp"), *alone);
    bench.state.connect_parts(mesh.group("tp"));
    EXPECT_TRUE(replicas_that_differ(bench.state).empty());
    // The same change on both data-parallel ranks: they agree, and ranks 0 and 1 do not.
    for (const nn::Param* param : bench.state.store().trained()) {
      if (param->shared_by.empty()) continue;
      auto* bytes = static_cast<unsigned char*>(param->value.raw());
      if (world.rank() % 2 == 1) bytes[5] ^= 1;
      EXPECT_EQ(replicas_that_differ(bench.state), (std::vector<int>{0, 1})) << param->name;
      if (world.rank() % 2 == 1) bytes[5] ^= 1;
    }
    // A part that one data-parallel rank has otherwise.
    auto* bytes = static_cast<unsigned char*>(bench.state.store().values().raw());
    if (world.rank() == 3) bytes[0] ^= 1;
    EXPECT_EQ(replicas_that_differ(bench.state), (std::vector<int>{1, 3}));
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, Replicas,
                         ::testing::Values(Layout{0, 2, 1}, Layout{0, 3, 1}, Layout{1, 2, 1},
                                           Layout{2, 2, 2}, Layout{3, 2, 2}));

}  // namespace
}  // namespace atl::train
