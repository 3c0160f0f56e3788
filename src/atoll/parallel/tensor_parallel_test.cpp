// Ranks that share each product against one rank: the same losses and gradients up to the order of
// sums, the same initial values, for every family.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "atoll/comm/mesh.h"
#include "atoll/nn/models/family.h"
#include "atoll/ops/testing.h"
#include "atoll/parallel/runner.h"
#include "atoll/parallel/store_single.h"

namespace atl::parallel {
namespace {

struct Shape {
  std::string family = "llama";
  std::int64_t heads = 4, kv_heads = 4;
  std::int64_t intermediate = 10;  // what 4 ranks do not share evenly
  std::int64_t vocab = 13;
  bool tied = true;
  std::int64_t layers = 2, length = 12, batch = 2;
  bool documents = false;  ///< several in a sequence, which do not see each other
};

nn::ModelConfig config_of(const Shape& shape) {
  nn::ModelConfig config;
  config.family = shape.family;
  config.vocab_size = shape.vocab;
  config.hidden_size = shape.heads * 4;
  config.num_layers = shape.layers;
  config.heads = {shape.heads, shape.kv_heads, 4};
  config.intermediate_size = shape.intermediate;
  config.max_positions = 32;
  config.initializer_range = 0.3;  // far from zero: every path carries a gradient
  config.tie_embeddings = shape.tied;
  const std::string& family = shape.family;
  config.qkv_bias = family == "qwen2";
  config.qk_norm = family == "qwen3";
  config.attention_bias = config.mlp_bias = family == "gpt2";
  if (family == "gpt2") config.activation = "gelu_new";
  return config;
}

// What a training pass gives: values and gradients of whole parameters by name.
struct Outcome {
  double loss = 0;
  double grad_norm = 0;
  std::map<std::string, std::vector<double>> values, gradients;
};

std::vector<double> copy_of(const Tensor& tensor) {
  const auto* data = tensor.data<double>();
  return {data, data + tensor.num_elements()};
}

// Adds a rank's part to the whole.
void put(const nn::Param& param, const Tensor& part,
         std::map<std::string, std::vector<double>>& to) {
  if (!param.cut) {
    to[param.name] = copy_of(part);
    return;
  }
  const nn::Param& whole = param.cut->whole;
  std::vector<double>& values = to[param.name];
  values.resize(static_cast<std::size_t>(whole.spec.shape.num_elements()));
  const auto rank = static_cast<std::size_t>(param.cut->rank);
  nn::copy_slice_back(param.cut->slices[rank], part, {values.data(), whole.spec});
}

// One pass of this rank; every rank of `group` calls it, null: alone.
void train(const Shape& shape, nn::BuildOptions options, comm::Group* group, Outcome& outcome,
           std::mutex& mutex) {
  const nn::ModelConfig config = config_of(shape);
  options.dtype = Dtype::kF64;
  if (group != nullptr) {
    options.tensor_size = group->size();
    options.tensor_rank = group->rank();
  }
  test::TestRun run(1, 64);
  const auto model = nn::build_model(config, options);
  std::unique_ptr<comm::Group> copies;
  if (group != nullptr) {
    model->tensor->group = group;
    nn::Axis& kv = *model->kv_copies;
    const int first = group->rank() - kv.rank;
    std::vector<int> members;
    for (int r = 0; r < kv.size; ++r) members.push_back(first + r);
    copies = group->world().group(members, "kv");
    kv.group = copies.get();
  }
  SingleStore store(*model, true);
  Runner runner(*model, store, Use::kTrain, shape.batch, shape.length);
  MemoryPlan plan;
  store.request(plan);
  runner.request(plan);
  plan.place();
  Arena arena(*run.device, plan);
  store.bind(arena);
  runner.bind(arena);
  store.initialise(run, 5);
  run.run.seed = 9;
  run.run.loss_scale = 1.0 / static_cast<double>(shape.batch * shape.length);
  auto tokens = test::random_tokens({shape.batch, shape.length}, config.vocab_size, 1);
  auto targets = test::random_tokens({shape.batch, shape.length}, config.vocab_size, 2);
  targets[shape.length - 1] = kIgnoreTarget;
  test::OwnedTensor<std::int32_t> positions({shape.batch, shape.length});
  Batch batch = {tokens, targets, 0};
  if (shape.documents) {
    const RngStream stream(7, RngPurpose::kSynthetic);
    for (std::int64_t i = 0; i < positions.size(); ++i) {
      const bool begins =
          i % shape.length == 0 || stream.word(static_cast<std::uint64_t>(i)) % 4 == 0;
      positions[i] = begins ? 0 : positions[i - 1] + 1;
    }
    batch.positions = positions;
  }
  store.begin_round({});
  const double loss = runner.train(run, batch);
  store.reduce(run);
  const double norm = store.grad_norm(run);
  const double evaluated = runner.evaluate(run, batch);
  const std::lock_guard lock(mutex);
  if (options.dropout == 0) {
    EXPECT_NEAR(evaluated, loss, 1e-12 * loss);
  }
  for (const nn::Param* param : store.trained()) {
    put(*param, param->value, outcome.values);
    put(*param, param->grad, outcome.gradients);
  }
  outcome.loss = loss;
  outcome.grad_norm = norm;
}

void expect_same(const Shape& shape, int num_ranks, const nn::BuildOptions& options = {}) {
  SCOPED_TRACE(fmt::format("{} with {} and {} heads on {} ranks", shape.family, shape.heads,
                           shape.kv_heads, num_ranks));
  std::mutex mutex;
  Outcome alone, shared;
  train(shape, options, nullptr, alone, mutex);
  comm::run_threads(num_ranks, {}, [&](comm::World& world) {
    train(shape, options, &world.all(), shared, mutex);
  });
  // Sums of a few hundred terms of order one, in another order.
  constexpr double kTolerance = 1e-12;
  EXPECT_NEAR(shared.loss, alone.loss, kTolerance * alone.loss);
  EXPECT_NEAR(shared.grad_norm, alone.grad_norm, kTolerance * alone.grad_norm);
  EXPECT_EQ(shared.values, alone.values);
  for (const auto& [name, expected] : alone.gradients) {
    const std::vector<double>& actual = shared.gradients[name];
    ASSERT_EQ(actual.size(), expected.size()) << name;
    double largest = 0;
    for (const double g : expected) largest = std::max(largest, std::abs(g));
    if (!shape.documents) {
      ASSERT_GT(largest, 0) << name;
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], kTolerance * std::max(largest, 1.0)) << name << " " << i;
    }
  }
}

TEST(TensorParallel, GradientsOfEveryFamilyAreThoseOfOneRank) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "gpt2"}) {
    for (const int num_ranks : {2, 3, 4}) {
      Shape shape = {.family = family};
      if (num_ranks == 3) shape.heads = shape.kv_heads = 3;
      expect_same(shape, num_ranks);
    }
  }
}

TEST(TensorParallel, GroupedKeysAreCutOrCopied) {
  expect_same({.heads = 4, .kv_heads = 2}, 2);
  expect_same({.heads = 4, .kv_heads = 2}, 4);
  expect_same({.heads = 4, .kv_heads = 1}, 4);
  expect_same({.family = "qwen2", .heads = 8, .kv_heads = 2}, 4);
  expect_same({.family = "qwen3", .heads = 6, .kv_heads = 3}, 6);
}

TEST(TensorParallel, AHeadOfItsOwnIsSharedToo) {
  expect_same({.tied = false}, 2);
  expect_same({.family = "qwen2", .vocab = 4, .tied = false}, 4);
}

TEST(TensorParallel, RecomputeGivesTheSame) {
  expect_same({}, 2, {.recompute = nn::RecomputeMode::kSelective});
  expect_same({}, 4, {.recompute = nn::RecomputeMode::kFull});
}

TEST(TensorParallel, DropoutDrawsTheSame) {
  expect_same({}, 2, {.dropout = 0.3});
  expect_same({.family = "gpt2"}, 4, {.recompute = nn::RecomputeMode::kFull, .dropout = 0.1});
}

// One of what a seed draws.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : stream_(seed, RngPurpose::kSynthetic) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const auto width = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<std::int64_t>(stream_.word(next_++) % width);
  }
  template <typename T>
  T one_of(std::initializer_list<T> of) {
    return *(of.begin() + between(0, static_cast<std::int64_t>(of.size()) - 1));
  }

 private:
  RngStream stream_;
  std::uint64_t next_ = 0;
};

// ATOLL_LAYOUTS: how many layouts to draw, 100 by default.
TEST(TensorParallel, AnyLayoutThatASeedDrawsGivesTheSame) {
  const char* asked = std::getenv("ATOLL_LAYOUTS");
  const std::int64_t count = asked == nullptr ? 100 : std::stoll(asked);
  for (std::int64_t seed = 0; seed < count; ++seed) {
    Draw draw(static_cast<std::uint64_t>(seed));
    Shape shape;
    const auto ranks = draw.between(2, 8);
    shape.family = draw.one_of({"llama", "mistral", "qwen2", "qwen3", "gpt2"});
    shape.heads = ranks * draw.between(1, 2);
    shape.kv_heads = shape.heads;
    if (shape.family != "gpt2") {
      do {
        shape.kv_heads = draw.between(1, shape.heads);
      } while (shape.heads % shape.kv_heads != 0 ||
               (shape.kv_heads % ranks != 0 && ranks % shape.kv_heads != 0));
    }
    shape.intermediate = draw.between(ranks, 23);
    shape.vocab = draw.between(ranks, 29);
    shape.tied = draw.between(0, 1) == 1;
    shape.layers = draw.between(1, 3);
    shape.batch = draw.between(1, 3);
    shape.length = ranks * draw.between(1, 16 / ranks);
    shape.documents = draw.between(0, 1) == 1;
    nn::BuildOptions options;
    options.recompute = draw.one_of(
        {nn::RecomputeMode::kNone, nn::RecomputeMode::kSelective, nn::RecomputeMode::kFull});
    options.dropout = draw.between(0, 2) == 0 ? 0.2 : 0.0;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    expect_same(shape, static_cast<int>(ranks), options);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(TensorParallel, WhatCannotBeSharedIsRefusedByName) {
  const auto build = [](const Shape& shape, int size) {
    try {
      nn::build_model(config_of(shape), {.tensor_size = size});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(build({.heads = 4}, 3).find("4 attention heads"), std::string::npos);
  EXPECT_NE(build({.heads = 12, .kv_heads = 4}, 6).find("4 key-value heads"), std::string::npos);
  EXPECT_NE(build({.vocab = 3}, 4).find("3 tokens"), std::string::npos);
}

}  // namespace
}  // namespace atl::parallel
