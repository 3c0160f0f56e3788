// State in a file gives the bits of state in memory, whatever moves between the two.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>

#include "atoll/base/files/file.h"
#include "atoll/ckpt/testing.h"
#include "atoll/comm/mesh.h"
#include "atoll/optim/registry.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ckpt::testing::TemporaryDirectory;
using ::testing::AllOf;
using testing::Bench;
using ::testing::HasSubstr;

enum class Place { kMemory, kOptimizerInFile, kAllInFile };

struct Case {
  std::string optimizer = "adamw";
  std::string family = "gpt2";  // its embeddings are tied
  Dtype dtype = Dtype::kF32;
  optim::Masters masters = optim::Masters::kF32;
  nn::RecomputeMode recompute = nn::RecomputeMode::kNone;
  std::int64_t micro_batch = 2;        // of eight samples
  std::int64_t piece_elements = 8192;  // whole pages of the file

  std::string name() const {
    return fmt::format(
        "{}_{}_{}{}{}_by{}_pieces{}", optimizer, family, dtype == Dtype::kBf16 ? "bf16" : "f32",
        masters == optim::Masters::kStochastic ? "_stochastic" : "",
        recompute == nn::RecomputeMode::kNone ? "" : "_recompute", micro_batch, piece_elements);
  }
};

// Blocks of some pages, so that stages come and go.
StateOptions options_of(const Case& given, Place place, const fs::path& directory) {
  StateOptions options = {.model = testing::tiny_model(given.family), .context = 16};
  options.model.num_layers = 4;
  options.model.hidden_size = 48;
  options.model.heads.head_dim = 12;
  options.model.intermediate_size = 104;
  options.build = {.dtype = given.dtype, .recompute = given.recompute, .dropout = 0.1};
  options.optimizer = {.kind = given.optimizer, .masters = given.masters};
  if (given.optimizer == "sgd") options.optimizer.values["momentum"] = 0.9;
  options.micro_batch = given.micro_batch;
  options.data_parallel.rounds = Bench::kSamples / given.micro_batch;
  options.offload = {.optimizer = place != Place::kMemory,
                     .params = place == Place::kAllInFile,
                     .directory = directory,
                     .piece_elements = given.piece_elements};
  return options;
}

double lr_of(const std::string& optimizer) {
  return optimizer == "lion" ? 0.002 : optimizer == "sgd" ? 0.05 : 0.01;
}

StepResult step(Bench& bench, const Case& given, std::int64_t number) {
  // A norm that clips.
  return bench.step({.step = number, .seed = 3, .lr = lr_of(given.optimizer), .clip = 0.25},
                    number * 8);
}

double evaluated(Bench& bench, const Case& given) {
  const Batch batch = {bench.tokens.view().rows(0, given.micro_batch),
                       bench.targets.view().rows(0, given.micro_batch), 0};
  return bench.state.runner().evaluate({.stream = &bench.run.stream}, batch);
}

void expect_same_step(Bench& bench, Bench& expected, const Case& given, std::int64_t number) {
  const StepResult one = step(bench, given, number);
  const StepResult other = step(expected, given, number);
  ASSERT_EQ(one.loss, other.loss) << "step " << number;
  ASSERT_EQ(one.grad_norm, other.grad_norm) << "step " << number;
}

void expect_same_state(Bench& bench, Bench& expected) {
  bench.state.store().settle();
  // Not EXPECT_EQ, which would print them.
  EXPECT_TRUE(bench.values() == expected.values());
  std::map<std::string, std::map<std::int64_t, std::string>> vectors[2];
  int number = 0;
  for (Bench* of : {&bench, &expected}) {
    for (const optim::StateTensor& piece : of->state.optimizer().state()) {
      vectors[number][piece.name][piece.begin] = Bench::bytes(piece.tensor);
    }
    ++number;
  }
  EXPECT_TRUE(vectors[0] == vectors[1]);
}

class Offload : public ::testing::TestWithParam<Case> {
 protected:
  TemporaryDirectory directory_{"offload"};

  StateOptions options(Place place) const {
    return options_of(GetParam(), place, directory_ / "f");
  }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds()) {
    cases.push_back({.optimizer = kind.name});
    cases.push_back({.optimizer = kind.name, .family = "llama", .dtype = Dtype::kBf16});
  }
  cases.push_back({.dtype = Dtype::kBf16, .masters = optim::Masters::kStochastic});
  cases.push_back({.recompute = nn::RecomputeMode::kFull});
  cases.push_back({.micro_batch = 8});
  cases.push_back({.piece_elements = 3333});  // nothing begins where a page does
  cases.push_back({.optimizer = "muon", .piece_elements = 100});  // less than a matrix
  cases.push_back({.piece_elements = 1 << 20});                   // one piece
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Offload, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name(); });

class OffloadSaved : public Offload {};

INSTANTIATE_TEST_SUITE_P(Some, OffloadSaved,
                         ::testing::Values(Case{}, Case{.optimizer = "muon"},
                                           Case{.optimizer = "sgd", .dtype = Dtype::kBf16},
                                           Case{.family = "llama", .dtype = Dtype::kBf16}),
                         [](const auto& info) { return info.param.name(); });

TEST_P(Offload, HasTheBitsOfMemory) {
  for (const Place place : {Place::kOptimizerInFile, Place::kAllInFile}) {
    Bench expected(options(Place::kMemory));
    Bench bench(options(place));
    for (std::int64_t number = 0; number < 4; ++number) {
      expect_same_step(bench, expected, GetParam(), number);
      if (number % 2 == 0) {
        ASSERT_EQ(evaluated(bench, GetParam()), evaluated(expected, GetParam()));
      }
    }
    expect_same_state(bench, expected);
  }
}

TEST_P(OffloadSaved, GoesIntoAFileAndOutOfItThroughCheckpoints) {
  const Place places[] = {Place::kAllInFile, Place::kMemory, Place::kOptimizerInFile,
                          Place::kAllInFile};
  Bench expected(options(Place::kMemory));
  std::optional<Bench> bench;
  bench.emplace(options(places[0]));
  for (std::int64_t number = 0; number < 6; ++number) {
    expect_same_step(*bench, expected, GetParam(), number);
    if (number % 2 == 0) continue;
    const fs::path path =
        save_checkpoint(directory_ / "checkpoints", bench->state, {.step = number}, {});
    const fs::path same =
        save_checkpoint(directory_ / "expected", expected.state, {.step = number}, {});
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      ASSERT_TRUE(read_file(path / file) == read_file(same / file)) << file;
    }
    bench.emplace(options(places[static_cast<std::size_t>(number / 2 + 1) % 4]));
    load_checkpoint(ckpt::verify_checkpoint(path), bench->state, bench->run.device->threads());
  }
  expect_same_state(*bench, expected);
}

TEST_P(OffloadSaved, ABadStepChangesNothing) {
  for (const Place place : {Place::kOptimizerInFile, Place::kAllInFile}) {
    Bench bench(options(place));
    step(bench, GetParam(), 0);
    bench.state.store().settle();
    // Makes all losses bad from here on.
    const Tensor values = bench.state.store().values();
    std::fill_n(static_cast<std::byte*>(values.raw()), 64, std::byte{0xff});
    const std::string before = bench.values() + bench.moments();
    EXPECT_FALSE(step(bench, GetParam(), 1).taken());
    bench.state.store().settle();
    EXPECT_TRUE(bench.values() + bench.moments() == before);
  }
}

// What a run has in memory, and what in the file.
TEST(OffloadPlan, HasInMemoryWhatAStageAndThreePiecesNeed) {
  Case given = {.micro_batch = 1};
  const auto planned = [&](Place place) {
    StateOptions options = options_of(given, place, "nowhere");
    options.model.num_layers = 24;
    options.build.recompute = nn::RecomputeMode::kFull;
    return std::make_unique<TrainState>(options);
  };
  const auto memory = planned(Place::kMemory);
  const auto optimizer = planned(Place::kOptimizerInFile);
  const auto all = planned(Place::kAllInFile);
  const std::size_t flat = memory->store().flat().bytes();
  EXPECT_EQ(memory->file_memory().total_bytes(), 0U);
  EXPECT_EQ(optimizer->memory().peak_bytes("optimizer"), 0U);
  EXPECT_EQ(optimizer->memory().peak_bytes("parameters"), flat);
  EXPECT_EQ(optimizer->file_memory().peak_bytes("optimizer"),
            2 * ((flat + kFilePage - 1) / kFilePage * kFilePage));
  EXPECT_EQ(all->memory().peak_bytes("parameters"), 0U);
  EXPECT_EQ(all->memory().peak_bytes("gradients"), 0U);
  EXPECT_GE(all->file_memory().total_bytes(), 4 * flat);
  // The state alone is more than four times what the whole run has in memory.
  EXPECT_LT(4 * all->memory().total_bytes(), 4 * flat);
}

TEST(OffloadErrors, NoRoomIsToldBeforeMemoryIsTaken) {
  const TemporaryDirectory directory("offload");
  const Case given;
  StateOptions options = options_of(given, Place::kAllInFile, directory / "f");
  TrainState state(options);
  io_fault::arm(io_fault::Call::kOpen, 1, ENOSPC, (directory / "f").string());
  const std::unique_ptr<Device> device = open_cpu(1);
  try {
    state.allocate(*device);
    ADD_FAILURE() << "allocated";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr((directory / "f").string()), HasSubstr("free some space")));
  }
  io_fault::disarm();
}

// Writes of a step fail: the step ends with that error, and nothing hangs.
TEST(OffloadErrors, AWriteThatFailsEndsTheStep) {
  const TemporaryDirectory directory("offload");
  const Case given = {.micro_batch = 8};
  for (int countdown = 1;; countdown += 7) {
    Bench bench(options_of(given, Place::kAllInFile, directory / "f"));
    io_fault::arm(io_fault::Call::kWrite, countdown, EIO, (directory / "f").string());
    try {
      step(bench, given, 0);
      io_fault::disarm();
      EXPECT_GT(countdown, 21) << "more writes than that has a step";
      break;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo);
      EXPECT_THAT(error.what(), HasSubstr("of the scratch file in"));
    }
  }
}

// What three ranks hold after some steps.
std::map<int, std::string> train_ranks(Place place, int zero, const std::string& optimizer,
                                       std::int64_t micro_batches) {
  std::map<int, std::string> held;
  std::mutex mutex;
  const TemporaryDirectory directory("offload");
  comm::run_threads(3, {.timeout_s = 120}, [&](comm::World& world) {
    const Case given = {.optimizer = optimizer, .family = "llama", .micro_batch = 2};
    StateOptions options = options_of(given, place, directory / "f");
    options.data_parallel = {.zero = static_cast<parallel::Zero>(zero),
                             .num_ranks = 3,
                             .rank = world.rank(),
                             .rounds = (micro_batches + 2) / 3,
                             .bucket_bytes = 100 << 10};
    options.data_parallel.whole_matrices = optim::find_optimizer(optimizer).whole_matrices;
    comm::Mesh mesh(world, {{"shard", 3}});
    Bench bench(options, 1);
    bench.state.connect(world.all(), mesh.group("shard"), nullptr);
    const parallel::MicroBatchPlan plan(micro_batches, 3);
    const std::vector<std::int64_t> mine = plan.of(world.rank());
    for (std::int64_t number = 0; number < 4; ++number) {
      std::size_t next = 0;
      take_step(bench.state, bench.run.stream,
                {.step = number,
                 .num_micro_batches = micro_batches,
                 .lr = 0.01,
                 .clip = 0.25,
                 .plan = &plan},
                [&] {
                  const std::int64_t at = 2 * mine.at(next++);
                  return Batch{bench.tokens.view().rows(at, at + 2),
                               bench.targets.view().rows(at, at + 2), at};
                });
    }
    bench.state.store().settle();
    const std::lock_guard lock(mutex);
    held[world.rank()] = bench.values() + bench.moments();
  });
  return held;
}

// Each rank has its part of the state in a file of its own.
TEST(OffloadRanks, HaveTheBitsOfMemoryWithEveryZeroStage) {
  const struct {
    int zero;
    const char* optimizer;
    std::int64_t micro_batches;  // of three ranks: four need another round
  } cases[] = {{0, "adamw", 3}, {1, "muon", 4}, {2, "adamw", 4}, {3, "adamw", 4}, {3, "muon", 3}};
  for (const auto& [zero, optimizer, micro_batches] : cases) {
    const auto expected = train_ranks(Place::kMemory, zero, optimizer, micro_batches);
    const auto in_file = train_ranks(Place::kOptimizerInFile, zero, optimizer, micro_batches);
    EXPECT_TRUE(in_file == expected) << zero << " " << optimizer;
    if (zero < 3) continue;
    const auto all = train_ranks(Place::kAllInFile, zero, optimizer, micro_batches);
    EXPECT_TRUE(all == expected) << zero << " " << optimizer;
  }
}

}  // namespace
}  // namespace atl::train
