#include "atoll/parallel/store/store_data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include "atoll/comm/mesh.h"
#include "atoll/comm/world.h"
#include "atoll/nn/models/family.h"
#include "atoll/ops/testing.h"
#include "atoll/optim/registry.h"
#include "atoll/parallel/layout/micro_batches.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/store/store_single.h"

namespace atl::parallel {
namespace {

// Odd sizes, and blocks large enough that every rank has a part of most buckets.
nn::ModelConfig small_model(bool tied, std::int64_t layers = 3) {
  nn::ModelConfig config;
  config.family = "llama";
  config.vocab_size = 211;
  config.hidden_size = 84;
  config.num_layers = layers;
  config.heads = {.num_heads = 6, .num_kv_heads = 3, .head_dim = 14};
  config.intermediate_size = 210;
  config.max_positions = 8;
  config.initializer_range = 0.1;
  config.tie_embeddings = tied;
  return config;
}

struct Config {
  int shard = 1;     // ranks that share a copy
  int replicas = 1;  // copies
  Zero zero = Zero::kNone;
  bool exact = false;
  std::int64_t micro_batches = 4;
  bool tied = true;
  std::int64_t bucket_bytes = 200 << 10;
  std::int64_t steps = 3;
  Dtype dtype = Dtype::kF32;
  std::string optimizer = "adamw";
  std::vector<std::int64_t> shares = {};  // of the micro-batches; empty: even
  bool weights_last = false;              // every W after every B, the first stage's first
};

struct Outcome {
  std::vector<std::byte> values;  // of all parameters, whole
  std::vector<double> norms;
  std::vector<comm::Traffic> traffic;  // of each rank, of its shard group
  std::size_t bytes = 0;               // planned, on rank 0
  double seconds_waited = 0;
};

std::vector<Action> weights_last(std::size_t stages) {
  std::vector<Action> actions;
  for (std::size_t i = 0; i < stages; ++i) actions.push_back({ActionKind::kForward, i});
  for (std::size_t i = stages; i-- > 0;) actions.push_back({ActionKind::kBackwardInput, i});
  for (std::size_t i = 0; i < stages; ++i) actions.push_back({ActionKind::kBackwardWeight, i});
  return actions;
}

// One rank's part of a small training run.
class Bench {
 public:
  Bench(comm::World& world, const Config& setup)
      : setup_(setup),
        mesh_(world, {{"replicate", setup.replicas, "dp"}, {"shard", setup.shard, "dp"}}),
        run_(1, 1 << 22),
        model_(nn::build_model(small_model(setup.tied), {.dtype = setup.dtype})),
        plan_(setup.shares.empty() ? MicroBatchPlan(setup.micro_batches, world.size())
                                   : MicroBatchPlan(setup.shares)) {
    DataParallelOptions options;
    options.zero = setup.zero;
    options.num_ranks = setup.shard;
    options.rank = mesh_.coordinate("shard");
    options.replicas = setup.replicas;
    options.exact = setup.exact;
    options.rounds = plan_.rounds();
    options.bucket_bytes = setup.bucket_bytes;
    options.whole_matrices = optim::find_optimizer(setup.optimizer).whole_matrices;
    if (options.is_plain()) {
      store_ = std::make_unique<SingleStore>(*model_, true);
    } else {
      auto shared = std::make_unique<DataParallelStore>(*model_, true, options);
      shared->connect(mesh_.group("shard"), &mesh_.group("replicate"));
      store_ = std::move(shared);
    }
    runner_ = setup.weights_last
                  ? std::make_unique<Runner>(*model_, *store_, Use::kTrain, 2, 8,
                                             alone(weights_last(model_->stages.size())))
                  : std::make_unique<Runner>(*model_, *store_, Use::kTrain, 2, 8);
    store_->request(memory_, runner_->schedule());
    runner_->request(memory_);
    optimizer_ = optim::make_optimizer({.kind = setup.optimizer}, store_->flat(), store_->ranges());
    optimizer_->request(memory_);
    memory_.place();
    arena_ = std::make_unique<Arena>(*run_.device, memory_);
    store_->bind(*arena_);
    runner_->bind(*arena_);
    optimizer_->bind(*arena_);
    store_->initialise(run_, 7);
    optimizer_->init_masters(run_, store_->values());
  }

  double step(std::int64_t number) {
    Run run = run_;
    const int rank = mesh_.world().rank();
    const std::vector<std::int64_t> mine = plan_.of(rank);
    for (std::int64_t round = 0; round < plan_.rounds(); ++round) {
      const std::vector<int> contributors = plan_.contributors(round);
      store_->begin_round({round, round + 1 == plan_.rounds(), contributors});
      if (round >= plan_.share(rank)) {
        runner_->idle(run, true);
        continue;
      }
      const auto seed = static_cast<std::uint64_t>(1 + number * plan_.num_micro_batches() +
                                                   mine[static_cast<std::size_t>(round)]);
      auto tokens = test::random_tokens({2, 8}, 211, 2 * seed);
      auto targets = test::random_tokens({2, 8}, 211, 2 * seed + 1);
      run.loss_scale = 1.0 / static_cast<double>(16 * plan_.num_micro_batches());
      runner_->train(run, {tokens, targets, 0});
    }
    store_->reduce(run);
    const double norm = store_->grad_norm(run);
    optimizer_->update(run,
                       {.lr = 0.01, .grad_scale = std::min(1.0, 0.5 / norm), .step = number + 1},
                       store_->values(), store_->grads());
    store_->publish(run);
    return norm;
  }

  double evaluate() {
    auto tokens = test::random_tokens({2, 8}, 211, 2);
    auto targets = test::random_tokens({2, 8}, 211, 3);
    return runner_->evaluate(run_, {tokens, targets, 0});
  }

  std::vector<std::byte> whole() {
    const Spec flat = store_->flat();
    std::vector<std::byte> all(flat.bytes());
    const ElementRange range = {0, flat.shape.num_elements()};
    for (int reader = 0; reader < setup_.shard; ++reader) {
      const bool reads = mesh_.coordinate("shard") == reader;
      store_->read_whole(std::span(&range, 1), reader, reads ? Tensor(all.data(), flat) : Tensor());
    }
    return all;
  }

  const MemoryPlan& memory() const { return memory_; }
  ParamStore& store() { return *store_; }
  comm::Group& shard() { return mesh_.group("shard"); }

 private:
  Config setup_;
  comm::Mesh mesh_;
  test::TestRun run_;
  std::unique_ptr<nn::Model> model_;
  MicroBatchPlan plan_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  MemoryPlan memory_;
  std::unique_ptr<Arena> arena_;
};

Outcome train(const Config& setup) {
  const int ranks = setup.shard * setup.replicas;
  Outcome outcome;
  outcome.traffic.resize(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  comm::run_threads(ranks, {.timeout_s = 60}, [&](comm::World& world) {
    Bench bench(world, setup);
    std::vector<double> norms;
    for (std::int64_t s = 0; s < setup.steps; ++s) norms.push_back(bench.step(s));
    bench.store().settle();
    const comm::Traffic traffic = bench.shard().traffic();
    const std::vector<std::byte> whole = bench.whole();
    const std::lock_guard lock(mutex);
    outcome.traffic[static_cast<std::size_t>(world.rank())] = traffic;
    if (outcome.values.empty()) {
      outcome.values = whole;
      outcome.norms = norms;
      outcome.bytes = bench.memory().total_bytes();
    }
    EXPECT_EQ(whole, outcome.values) << "rank " << world.rank();
    EXPECT_EQ(norms, outcome.norms) << "rank " << world.rank();
  });
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_TRUE(a.values == b.values) << what;
}

TEST(DataParallel, EveryZeroStageGivesTheSameBits) {
  for (const int ranks : {2, 3}) {
    for (const std::int64_t per_rank : {1, 2}) {
      for (const bool tied : {true, false}) {
        Config setup = {.shard = ranks, .micro_batches = ranks * per_rank, .tied = tied};
        const Outcome expected = train(setup);
        for (const Zero zero : {Zero::kOptimizer, Zero::kGradients, Zero::kParameters}) {
          setup.zero = zero;
          expect_same(
              train(setup), expected,
              fmt::format("{} ranks, {} each, ZeRO {}", ranks, per_rank, static_cast<int>(zero)));
        }
      }
    }
  }
}

// A bucket of several stages is complete with the last of their gradients, whichever stage that is.
TEST(DataParallel, StagesMayCompleteInAnyOrder) {
  for (const bool tied : {true, false}) {
    for (const std::int64_t bucket_bytes :
         {std::int64_t{1}, std::int64_t{200 << 10}, std::int64_t{1 << 30}}) {
      Config setup = {.shard = 2, .tied = tied, .bucket_bytes = bucket_bytes};
      const Outcome expected = train(setup);
      setup.weights_last = true;
      for (const int zero : {0, 1, 2, 3}) {
        setup.zero = static_cast<Zero>(zero);
        expect_same(train(setup), expected, fmt::format("{} bytes, ZeRO {}", bucket_bytes, zero));
      }
    }
  }
}

TEST(DataParallel, EvaluationReducesNothing) {
  for (const int zero : {0, 1, 2, 3}) {
    std::atomic<std::uint64_t> sent = 0;
    std::uint64_t bytes = 0;
    comm::run_threads(2, {.timeout_s = 60}, [&](comm::World& world) {
      Bench bench(world, {.shard = 2, .zero = static_cast<Zero>(zero), .tied = false});
      bench.step(0);
      bench.evaluate();  // takes the values that the step has published
      bench.store().settle();
      const std::uint64_t before = bench.shard().traffic().sent;
      bench.evaluate();
      bench.store().settle();
      sent += bench.shard().traffic().sent - before;
      if (world.rank() == 0) bytes = bench.store().flat().bytes();
    });
    // ZeRO 3 gathers each parameter once, and parts end at multiples of a few elements.
    const double gathered = zero < 3 ? 0 : static_cast<double>(bytes);
    EXPECT_NEAR(static_cast<double>(sent), gathered, 0.01 * gathered) << zero;
  }
}

TEST(DataParallel, ExactSumsDoNotDependOnRanksOrAccumulation) {
  Config setup = {.exact = true, .micro_batches = 6};
  const Outcome expected = train(setup);
  for (const int ranks : {2, 3, 4, 6}) {
    for (const Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kGradients, Zero::kParameters}) {
      setup.shard = ranks;
      setup.zero = zero;
      expect_same(train(setup), expected,
                  fmt::format("{} ranks, ZeRO {}", ranks, static_cast<int>(zero)));
    }
  }
}

TEST(DataParallel, IsWhatASingleRankComputes) {
  for (const bool tied : {true, false}) {
    // One micro-batch, wherever it is: there is nothing to sum, and no bit may differ.
    const Outcome plain = train({.micro_batches = 1, .tied = tied});
    for (const Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kGradients, Zero::kParameters}) {
      for (const auto& shares : {std::vector<std::int64_t>{1, 0}, {0, 1}}) {
        expect_same(
            train({.shard = 2, .zero = zero, .exact = true, .tied = tied, .shares = shares}), plain,
            fmt::format("ZeRO {}", static_cast<int>(zero)));
      }
    }
    // Several: sums in another order.
    const Outcome accumulated = train({.micro_batches = 4, .tied = tied, .steps = 1});
    const Outcome shared = train({.shard = 2, .micro_batches = 4, .tied = tied, .steps = 1});
    EXPECT_NEAR(shared.norms[0] / accumulated.norms[0], 1, 1e-5);
  }
}

TEST(DataParallel, ExactSumsDoNotDependOnWhoTakesWhat) {
  const Outcome expected = train({.exact = true, .micro_batches = 5});
  for (const Zero zero : {Zero::kNone, Zero::kGradients, Zero::kParameters}) {
    expect_same(train({.shard = 3, .zero = zero, .exact = true, .shares = {1, 3, 1}}), expected,
                "1 + 3 + 1");
    expect_same(train({.shard = 3, .zero = zero, .exact = true, .shares = {0, 1, 4}}), expected,
                "0 + 1 + 4");
  }
}

TEST(DataParallel, UnevenSharesSumTheSameAsEven) {
  // Another order of summation: not the same bits, but the same numbers.
  const Outcome even = train({.shard = 2, .zero = Zero::kOptimizer, .steps = 1});
  const Outcome uneven =
      train({.shard = 2, .zero = Zero::kOptimizer, .steps = 1, .shares = {3, 1}});
  EXPECT_NEAR(uneven.norms[0] / even.norms[0], 1, 1e-5);
}

TEST(DataParallel, EveryOptimizerSharesAlikeAndWithBf16AndMasters) {
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds()) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
      Config setup = {.shard = 3, .micro_batches = 3, .dtype = dtype, .optimizer = kind.name};
      const Outcome expected = train(setup);
      for (const Zero zero : {Zero::kOptimizer, Zero::kGradients, Zero::kParameters}) {
        setup.zero = zero;
        expect_same(train(setup), expected,
                    fmt::format("{}, ZeRO {}", kind.name, static_cast<int>(zero)));
      }
    }
  }
}

TEST(DataParallel, HybridShardingGivesTheSameBitsForEveryStage) {
  Config setup = {.shard = 2, .replicas = 2, .zero = Zero::kOptimizer};
  const Outcome expected = train(setup);
  for (const Zero zero : {Zero::kGradients, Zero::kParameters}) {
    setup.zero = zero;
    expect_same(train(setup), expected, fmt::format("ZeRO {}", static_cast<int>(zero)));
  }
  // The same gradients as four ranks in one group, summed in another order.
  const Outcome one_group = train({.shard = 4, .zero = Zero::kOptimizer});
  EXPECT_NEAR(expected.norms[0] / one_group.norms[0], 1, 1e-5);
}

// Elements that a rank sends in one step, but for the norm's block sums, in parameters.
double sent_per_step(Config setup) {
  setup.steps = 1;
  const Outcome one = train(setup);
  setup.steps = 3;
  const Outcome three = train(setup);
  double sent = 0;
  for (std::size_t r = 0; r < one.traffic.size(); ++r) {
    sent += static_cast<double>(three.traffic[r].sent - one.traffic[r].sent) / 2;
  }
  return sent / static_cast<double>(one.traffic.size());
}

TEST(DataParallel, BytesPerStepAreTheFormulas) {
  const auto model = nn::build_model(small_model(false), {});
  const FlatLayout whole(*model, {});
  const auto flat_bytes = static_cast<double>(whole.flat().bytes());
  for (const int ranks : {2, 3, 4}) {
    const double share = (ranks - 1.0) / ranks;
    Config setup = {.shard = ranks, .micro_batches = 2 * ranks, .tied = false};
    // ZeRO 0 to 2: a reduction and a gather of everything, once a step however many rounds.
    for (const Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kGradients}) {
      setup.zero = zero;
      // Block sums: one double for kBlockElements.
      EXPECT_NEAR(sent_per_step(setup) / (2 * share * flat_bytes), 1, 2e-3)
          << ranks << " ranks, ZeRO " << static_cast<int>(zero);
    }
    // ZeRO 3: gathered forward and backward in each of two rounds; the last stages are kept.
    setup.zero = Zero::kParameters;
    const FlatLayout by_stage(*model, {.num_ranks = ranks});
    const auto head = static_cast<double>(by_stage.buckets().back().size() * 4);
    EXPECT_NEAR(sent_per_step(setup) / (share * (2 * (2 * flat_bytes - head) + flat_bytes)), 1,
                2e-3);
    // Exact: each round is reduced.
    setup.exact = true;
    setup.zero = Zero::kGradients;
    EXPECT_NEAR(sent_per_step(setup) / (3 * share * flat_bytes), 1, 2e-3);
  }
}

TEST(DataParallel, PlannedMemoryIsTheFormula) {
  const auto model = nn::build_model(small_model(false), {});
  const auto P = static_cast<double>(FlatLayout(*model, {}).flat().bytes());  // 4 bytes each
  for (const int ranks : {2, 4}) {
    for (const Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kGradients, Zero::kParameters}) {
      const DataParallelOptions options = {.zero = zero, .num_ranks = ranks, .bucket_bytes = 1};
      DataParallelStore store(*model, true, options);
      Runner runner(*model, store, Use::kTrain, 1, 8);
      const auto optimizer = optim::make_optimizer({}, store.flat(), store.ranges());
      MemoryPlan plan;
      store.request(plan, runner.schedule());
      optimizer->request(plan);
      plan.place();
      const double values = static_cast<double>(plan.peak_bytes("parameters"));
      const double grads = static_cast<double>(plan.peak_bytes("gradients"));
      const double state = static_cast<double>(plan.peak_bytes("optimizer"));
      const double N = ranks;
      const double expected[] = {P + P + 2 * P, P + P + 2 * P / N, P + P / N + 2 * P / N,
                                 4 * P / N};
      // Parts are cut at blocks, and a bucket's share is within half a block of equal.
      const double slack =
          4.0 * 4 * kBlockElements / 2 * static_cast<double>(store.layout().buckets().size());
      EXPECT_NEAR(values + grads + state, expected[static_cast<int>(zero)], slack)
          << ranks << " ranks, ZeRO " << static_cast<int>(zero);
    }
  }
}

TEST(FlatLayout, PartsCoverEveryBucketAndRangesEveryElement) {
  for (const bool tied : {true, false}) {
    const auto model = nn::build_model(small_model(tied), {});
    for (const int ranks : {1, 2, 3, 5, 16}) {
      for (const std::int64_t bucket_bytes : {std::int64_t{0}, std::int64_t{1} << 18}) {
        const FlatLayout layout(*model, {.num_ranks = ranks, .bucket_bytes = bucket_bytes});
        std::int64_t end = 0;
        for (const Bucket& bucket : layout.buckets()) {
          EXPECT_EQ(bucket.begin, end);
          EXPECT_TRUE(std::is_sorted(bucket.parts.begin(), bucket.parts.end()));
          EXPECT_EQ(bucket.parts.back(), bucket.size());
          end = bucket.end;
        }
        EXPECT_EQ(end, layout.flat().shape.num_elements());
        std::vector<int> covered(static_cast<std::size_t>(end));
        std::size_t blocks = 0;
        for (int r = 0; r < ranks; ++r) {
          std::int64_t next = 0;
          for (const optim::ParamRange& range : layout.ranges_of(r)) {
            EXPECT_EQ(range.value_begin, next);
            next += range.count;
            for (std::int64_t i = 0; i < range.count; ++i) {
              ++covered[static_cast<std::size_t>(range.begin + i)];
            }
          }
          EXPECT_EQ(next, layout.share(r));
          blocks += norm_blocks(layout.ranges_of(r)).size();
        }
        EXPECT_TRUE(std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; }));
        EXPECT_EQ(blocks, norm_blocks(layout.ranges()).size());
      }
    }
  }
}

TEST(FlatLayout, MuonsMatricesAreNotCut) {
  const auto model = nn::build_model(small_model(true), {});
  const FlatLayout layout(*model, {.num_ranks = 3, .whole_matrices = true});
  std::size_t matrices = 0;
  for (int r = 0; r < 3; ++r) {
    for (const optim::ParamRange& range : layout.ranges_of(r)) matrices += range.matrix ? 1 : 0;
  }
  const auto whole = std::count_if(layout.ranges().begin(), layout.ranges().end(),
                                   [](const optim::ParamRange& range) { return range.matrix; });
  EXPECT_EQ(matrices, static_cast<std::size_t>(whole));
}

TEST(MicroBatchPlan, RoundsThenRanksCountAllMicroBatches) {
  const MicroBatchPlan plan({2, 0, 3, 1});
  EXPECT_EQ(plan.rounds(), 3);
  EXPECT_THAT(plan.of(0), testing::ElementsAre(0, 3));
  EXPECT_THAT(plan.of(1), testing::IsEmpty());
  EXPECT_THAT(plan.of(2), testing::ElementsAre(1, 4, 5));
  EXPECT_THAT(plan.of(3), testing::ElementsAre(2));
  EXPECT_THAT(plan.contributors(1), testing::ElementsAre(0, 2));
  const MicroBatchPlan even(7, 3);
  EXPECT_THAT(even.of(0), testing::ElementsAre(0, 3, 6));
  EXPECT_THAT(even.of(2), testing::ElementsAre(2, 5));
}

}  // namespace
}  // namespace atl::parallel
