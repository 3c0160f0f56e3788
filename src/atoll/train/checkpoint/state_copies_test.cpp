// What is left of a state when ranks are lost, in layouts that keep copies in different ways.

#include "atoll/train/checkpoint/state_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "atoll/base/error.h"
#include "atoll/train/model/connect_ranks.h"
#include "atoll/train/model/options.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

struct Layout {
  std::string name;
  int ranks = 1;
  int tp = 1, pp = 1, zero = 0;
  std::vector<int> lost;
  bool is_enough = true;  // what is left is all
  int ep = 1;
  bool has_experts = false;
};

class Copies : public ::testing::TestWithParam<Layout> {};

// Each element of each vector, by place, and how often it was given.
struct Given {
  std::map<std::string, std::map<std::int64_t, std::pair<float, int>>> vectors;
  std::mutex mutex;
  int failures = 0;
};

TrainConfig config_of(const Layout& layout) {
  TrainConfig config;
  config.train.context = 16;
  config.train.batch_size = 12;
  config.train.micro_batch = 1;
  config.parallel.tp = layout.tp;
  config.parallel.pp = layout.pp;
  config.parallel.ep = layout.ep;
  if (layout.has_experts) {
    config.model.family = "mixtral";
    config.model.num_experts = 4;
    config.model.intermediate_size = 33;
  }
  config.dp.zero = layout.zero;
  config.model.hidden_size = 32;
  config.model.num_hidden_layers = 3;
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = 2;
  return config;
}

// Makes the state of one rank, copies it twice, and gives what is left once `lost` are gone.
void give(const Layout& layout, comm::World& world, Given& given) {
  const TrainConfig config = config_of(layout);
  Ranks ranks(world, config);
  const auto device = open_device({.threads = 1});
  const auto stream = device->open_stream();
  TrainState state(state_options(config, 500, -1, world.size(), world.rank()));
  state.allocate(*device);
  const ModelGroups groups = connect_ranks(state, ranks);
  Run run = {.stream = stream.get()};
  state.store().initialise(run, 7);
  StateCopies copies(state, ranks);
  copies.take({.step = 3});
  state.store().initialise(run, 8);
  copies.take({.step = 4});
  EXPECT_EQ(copies.newest(), 4);
  EXPECT_TRUE(copies.has(3));
  std::vector<int> left;
  bool other_is_left = false;
  for (int r = 0; r < world.size(); ++r) {
    if (std::find(layout.lost.begin(), layout.lost.end(), r) != layout.lost.end()) continue;
    left.push_back(r);
    other_is_left |= copies.other() == r;
  }
  if (std::find(left.begin(), left.end(), world.rank()) == left.end()) return world.all().barrier();
  const auto group = world.group(left, "left");
  try {
    for (const optim::StateTensor& piece :
         given_once(*group, state.whole_layout(), copies.pieces(3, !other_is_left))) {
      const std::lock_guard lock(given.mutex);
      for (std::int64_t i = 0; i < piece.tensor.num_elements(); ++i) {
        auto& [value, times] = given.vectors[piece.name][piece.begin + i];
        value = piece.tensor.data<float>()[i];
        ++times;
      }
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kPeer) << error.what();
    const std::lock_guard lock(given.mutex);
    ++given.failures;
  }
  world.all().barrier();  // those that are lost, too, live until then
}

TEST_P(Copies, HaveEachElementOnceWhoeverIsLost) {
  Given given, whole;
  give({.name = "one", .has_experts = GetParam().has_experts}, *comm::open_self(), whole);
  comm::run_threads(GetParam().ranks, {.timeout_s = 60},
                    [&](comm::World& world) { give(GetParam(), world, given); });
  if (!GetParam().is_enough) {
    EXPECT_EQ(given.failures, GetParam().ranks - std::ssize(GetParam().lost));
    return;
  }
  EXPECT_EQ(given.failures, 0);
  ASSERT_EQ(whole.vectors.size(), 3U);  // values and two moments
  for (const auto& [name, elements] : whole.vectors)
    EXPECT_EQ(given.vectors[name], elements) << name;
}

INSTANTIATE_TEST_SUITE_P(
    All, Copies,
    ::testing::Values(
        Layout{"products", 2, 2, 1, 0, {1}}, Layout{"stages", 3, 1, 3, 0, {0}},
        Layout{"both", 4, 2, 2, 0, {2}}, Layout{"none", 4, 2, 2, 0, {}},
        Layout{"two_apart", 4, 2, 2, 0, {0, 2}}, Layout{"neighbours", 4, 2, 2, 0, {1, 2}, false},
        Layout{"same", 4, 2, 1, 0, {0, 3}}, Layout{"all_of_a_part", 4, 2, 1, 0, {0, 2}, false},
        Layout{"zero1", 4, 2, 1, 1, {3}}, Layout{"zero3", 4, 1, 2, 3, {1, 0}},
        Layout{"zero3_stages", 6, 1, 2, 3, {5}}, Layout{"experts", 4, 2, 1, 0, {1}, true, 2, true},
        Layout{"zero1_experts", 8, 2, 1, 1, {6}, true, 2, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace atl::train
