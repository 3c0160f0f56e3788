// Ranks that send less, on GPUs that the host plays: given the same gradients in some steps, they
// come to the bits of ranks on CPUs, in sums, in the residual, in moments and in parameters. What
// they send is then the same too.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "atoll/comm/world.h"
#include "atoll/compress/testing.h"
#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/nn/models/family.h"
#include "atoll/parallel/compress/compression.h"
#include "atoll/parallel/compress/onebit_adam.h"
#include "atoll/parallel/compress/weight_differences.h"
#include "atoll/parallel/compress/zero_one_adam.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {
namespace {

constexpr int kRanks = 2;
constexpr std::int64_t kSteps = 4;

nn::ModelConfig tiny_model() {
  nn::ModelConfig config;
  config.family = "llama";
  config.vocab_size = 23;
  config.hidden_size = 20;
  config.num_layers = 1;
  config.heads = {.num_heads = 2, .num_kv_heads = 2, .head_dim = 10};
  config.intermediate_size = 37;
  config.max_positions = 32;
  return config;
}

// What ranks come to: bits of each vector by name.
using Result = std::map<std::string, std::vector<std::byte>>;

void keep(Result& result, const std::string& name, const Tensor& tensor) {
  const HostRead read(tensor);
  result[name].assign(read.bytes().begin(), read.bytes().end());
}
void keep(Result& result, const std::string& name, const std::vector<optim::StateTensor>& state) {
  for (const optim::StateTensor& one : state) {
    keep(result, fmt::format("{} {} {}", name, one.name, one.begin), one.tensor);
  }
}
void write(const Tensor& tensor, const std::vector<float>& from) {
  write_on_host<float>(
      tensor, [&](std::span<float> to) { std::copy_n(from.begin(), to.size(), to.begin()); });
}

// One rank: a layout, memory, and gradients of each step.
struct Rank {
  Rank(Device& on, comm::Group& ranks)
      : device(on),
        group(ranks),
        model(nn::build_model(tiny_model(), {.dtype = Dtype::kF32})),
        layout(*model, {.num_ranks = kRanks, .bucket_bytes = 4000}),
        stream(on.open_stream()) {
    run.stream = stream.get();
    flat_request = plan.request_forever("values", "values", layout.flat().bytes());
    grads_request = plan.request_forever("grads", "grads", layout.flat().bytes());
  }
  // `own` has requested what it needs.
  void allocate() {
    plan.place();
    arena = std::make_unique<Arena>(device, plan);
    values = arena->tensor(flat_request, layout.flat());
    grads = arena->tensor(grads_request, layout.flat());
    write(values, test::codec_values(size(), 1000));
  }
  std::size_t size() const { return static_cast<std::size_t>(layout.flat().shape.num_elements()); }
  // Zeros where elements never have a gradient.
  void draw_gradients(std::int64_t step) {
    std::vector<float> all =
        test::codec_values(size(), static_cast<std::uint64_t>(10 * step + group.rank()));
    for (std::size_t i = 0; i < all.size(); i += 11) all[i] = 0;
    write(grads, all);
  }
  Tensor part_of(const Bucket& bucket, const Tensor& flat) const {
    const auto r = static_cast<std::size_t>(group.rank());
    return flat.rows(bucket.begin + bucket.parts[r], bucket.begin + bucket.parts[r + 1]);
  }

  Device& device;
  comm::Group& group;
  std::unique_ptr<nn::Model> model;
  FlatLayout layout;
  std::unique_ptr<Stream> stream;
  Run run;
  MemoryPlan plan;
  std::unique_ptr<Arena> arena;
  int flat_request = -1, grads_request = -1;
  Tensor values, grads;
};

// What `body` comes to on each rank, on CPUs or GPUs.
std::vector<Result> on_ranks(bool on_gpu, const std::function<void(Rank&, Result&)>& body) {
  std::vector<Result> results(kRanks);
  comm::run_threads(kRanks, {.timeout_s = 60}, [&](comm::World& world) {
    std::unique_ptr<Device> device;
    if (on_gpu) {
      device = std::make_unique<fake_cuda::FakeCudaDevice>(
          fake_cuda::Options{.seed = static_cast<std::uint64_t>(3 + world.rank()), .threads = 1});
    } else {
      device = open_cpu(1);
    }
    Rank rank(*device, world.all());
    body(rank, results[static_cast<std::size_t>(world.rank())]);
  });
  return results;
}

void expect_same(const std::function<void(Rank&, Result&)>& body, const std::string& what) {
  const std::vector<Result> cpu = on_ranks(false, body), gpu = on_ranks(true, body);
  for (std::size_t r = 0; r < kRanks; ++r) {
    ASSERT_FALSE(cpu[r].empty());
    for (const auto& [name, bytes] : cpu[r]) {
      ASSERT_EQ(gpu[r].count(name), 1u) << what << " " << name;
      EXPECT_TRUE(gpu[r].at(name) == bytes) << what << ", rank " << r << ": " << name;
    }
  }
}

void reduce(Rank& rank, const CompressionOptions& options, bool everybody_needs_it,
            Result& result) {
  const auto reduction = make_compressed_reduction(rank.layout, rank.group.rank(), options);
  reduction->request(rank.plan);
  rank.allocate();
  reduction->bind(*rank.arena);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    rank.draw_gradients(step);
    const std::span<const Bucket> buckets = rank.layout.buckets();
    const auto rows = [&](std::size_t b) {
      return rank.grads.rows(buckets[b].begin, buckets[b].end);
    };
    std::vector<comm::Work> work;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      work.push_back(reduction->start(rank.run, rank.group, b, rows(b)));
    }
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      work[b].wait();
      work[b] = reduction->next(rank.run, rank.group, b, rows(b),
                                rank.part_of(buckets[b], rank.grads), everybody_needs_it);
    }
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      work[b].wait();
      reduction->end(rank.run, b, rows(b));
      keep(result, fmt::format("{} sum {}", step, b),
           everybody_needs_it ? rows(b) : rank.part_of(buckets[b], rank.grads));
    }
    keep(result, std::to_string(step), reduction->state());
  }
  const std::vector<Tensor> factors = reduction->factors();
  for (std::size_t i = 0; i < factors.size(); ++i)
    keep(result, fmt::format("factor {}", i), factors[i]);
}

TEST(GpuCompression, SumsAndTheResidualHaveACpusBits) {
  for (const Compression how : {Compression::kInt8, Compression::kInt4, Compression::kPowerSgd}) {
    for (const bool feedback : {true, false}) {
      for (const bool everybody : {true, false}) {
        if (how == Compression::kPowerSgd && !everybody) continue;
        const CompressionOptions options = {.gradients = how, .feedback = feedback, .rank = 3};
        expect_same([&](Rank& rank, Result& result) { reduce(rank, options, everybody, result); },
                    compression_name(how));
      }
    }
  }
}

// A matrix whose factors are not finite is NaN on all ranks, and leaves the residual and the
// factors.
TEST(GpuCompression, APowerSgdThatIsNotFiniteChangesNothing) {
  const auto results = on_ranks(true, [](Rank& rank, Result& result) {
    const auto reduction = make_compressed_reduction(
        rank.layout, rank.group.rank(), {.gradients = Compression::kPowerSgd, .rank = 2});
    reduction->request(rank.plan);
    rank.allocate();
    reduction->bind(*rank.arena);
    keep(result, "before", reduction->factors().front());
    std::vector<float> all(rank.size(), 1e-3F);
    if (rank.group.rank() == 1) std::fill(all.begin(), all.end(), HUGE_VALF);
    write(rank.grads, all);
    for (std::size_t b = 0; b < rank.layout.buckets().size(); ++b) {
      const Bucket& bucket = rank.layout.buckets()[b];
      const Tensor rows = rank.grads.rows(bucket.begin, bucket.end);
      reduction->start(rank.run, rank.group, b, rows).wait();
      reduction->next(rank.run, rank.group, b, rows, rows, true).wait();
      reduction->end(rank.run, b, rows);
    }
    keep(result, "after", reduction->factors().front());
    const HostRead grads(rank.grads);
    EXPECT_FALSE(std::isfinite(grads.elements<float>()[0]));
    for (const optim::StateTensor& residual : reduction->state()) {
      const HostRead read(residual.tensor);
      for (const float one : read.elements<float>()) ASSERT_EQ(one, 0);
    }
  });
  for (const Result& result : results) EXPECT_EQ(result.at("after"), result.at("before"));
}

TEST(GpuCompression, DifferencesOfWeightsHaveACpusBits) {
  expect_same(
      [](Rank& rank, Result& result) {
        WeightDifferences differences(rank.layout, rank.group.rank());
        differences.request(rank.plan);
        rank.allocate();
        differences.bind(*rank.arena);
        write(differences.published(), test::codec_values(rank.size(), 5));
        differences.take_masters();
        const auto share = static_cast<std::size_t>(differences.masters().num_elements());
        for (std::int64_t step = 0; step < kSteps; ++step) {
          write(
              differences.masters(),
              test::codec_values(share, static_cast<std::uint64_t>(7 + step + rank.group.rank())));
          for (std::size_t b = 0; b < rank.layout.buckets().size(); ++b) {
            differences.start(rank.run, rank.group, b).wait();
            differences.apply(b, /*alone=*/step % 2 == 0);
          }
          keep(result, std::to_string(step), differences.state());
        }
      },
      "differences");
}

const optim::OptimizerOptions kAdam = {
    .kind = "adamw",
    .values = {{"beta1", 0.9}, {"beta2", 0.99}, {"eps", 1e-8}, {"weight_decay", 0.1}},
    .peak_lr = 0.01};

// Moments that AdamW would have come to, whose bits a GPU's AdamW does not share with a CPU's
// lanes.
void fill_moments(const Rank& rank, const OneBitOptimizer& optimizer) {
  for (const optim::StateTensor& state : optimizer.state()) {
    if (!state.name.starts_with("exp_avg")) continue;
    const bool is_second = state.name == "exp_avg_sq";
    std::vector<float> all = test::codec_values(rank.size(), is_second ? 71 : 72);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (is_second) all[i] = i % 11 == 0 ? 0 : all[i] * all[i] + 1e-9F;
    }
    write(state.tensor, {all.begin() + state.begin, all.end()});
  }
}

// Steps of an optimizer that exchanges signs, from `first` on; before step `restore_at` it goes on
// from its state as from a checkpoint.
void take_steps(Rank& rank, OneBitOptimizer& optimizer, std::int64_t first, std::int64_t restore_at,
                Result& result) {
  optimizer.request(rank.plan);
  rank.allocate();
  optimizer.bind(*rank.arena);
  optimizer.connect(rank.group);
  if (first > 0) fill_moments(rank, optimizer);
  for (std::int64_t step = first; step < 2 * kSteps; ++step) {
    rank.draw_gradients(step);
    if (step == restore_at) {
      optimizer.restored(optimizer.second_updates(), optimizer.residual_steps());
    }
    const bool sums = optimizer.begin_step(step);
    double norm = 1;
    if (sums) {
      rank.group.all_reduce(rank.grads);
    } else {
      norm = optimizer.grad_norm(rank.run, rank.grads);
      const HostRead own(rank.grads);
      EXPECT_GT(norm, 0);
    }
    optimizer.update(rank.run, {.lr = step == 5 ? 0 : 0.01, .grad_scale = 0.5, .step = step + 1},
                     rank.values, rank.grads);
    keep(result, fmt::format("{} values", step), rank.values);
  }
  optimizer.skip(rank.run, rank.values);
  keep(result, "values", rank.values);
  keep(result, "state", optimizer.state());
}

TEST(GpuCompression, OneBitAdamHasACpusBits) {
  for (const bool shares : {false, true}) {
    for (const std::int64_t restore_at : {-1, 4}) {
      expect_same(
          [&](Rank& rank, Result& result) {
            std::vector<optim::ParamRange> ranges(rank.layout.ranges().begin(),
                                                  rank.layout.ranges().end());
            if (shares) {
              ranges = rank.layout.ranges_of(rank.group.rank());
              for (optim::ParamRange& range : ranges) {
                range.value_begin = range.grad_begin = range.begin;
              }
            }
            OneBitAdam optimizer(kAdam, rank.layout, ranges, rank.group.rank(), /*warmup=*/2);
            take_steps(rank, optimizer, /*first=*/2, restore_at, result);
          },
          shares ? "1-bit Adam, shared" : "1-bit Adam");
    }
  }
}

TEST(GpuCompression, ZeroOneAdamHasACpusBits) {
  for (const std::int64_t warmup : {2, 100}) {
    expect_same(
        [&](Rank& rank, Result& result) {
          ZeroOneAdam optimizer(kAdam, rank.layout, rank.group.rank(),
                                {.warmup = warmup, .doubling = 2, .max_local = 3, .last_step = 7});
          take_steps(rank, optimizer, /*first=*/0, /*restore_at=*/-1, result);
        },
        "0/1 Adam");
  }
}

}  // namespace
}  // namespace atl::parallel
