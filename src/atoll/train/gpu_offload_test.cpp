// Optimizer state of a GPU that the host plays, in the host's memory and in a file: the bits of
// state in the GPU's memory, in any order of streams, among ranks, and after a stop.

#include "atoll/train/gpu_testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuOffload : public GpuRuns {
 protected:
  // Six pieces of three slots: each slot is used again.
  static Settings large(const Settings& more = {}) {
    return small(
        with({"--model.hidden_size=32", "--train.dtype=bf16", "--train.steps=3", "--eval.every=3"},
             more));
  }
  static Settings offloaded(const std::string& place, const Settings& more = {}) {
    return with({"--offload.optimizer=" + place, "--offload.piece_mib=0.03125"}, more);
  }
  void expect_same(const Ended& ended, const Ended& expected) {
    EXPECT_TRUE(all_tensors(ended.outcome.checkpoint) == all_tensors(expected.outcome.checkpoint));
    EXPECT_EQ(values_of(ended.records, "loss"), values_of(expected.records, "loss"));
  }
};

TEST_F(GpuOffload, HasTheBitsOfStateInMemoryInAnyOrderOfStreams) {
  const Ended expected = on_gpu("memory", large());
  for (const char* place : {"host", "file"}) {
    for (int order = 0; order < 4; ++order) {
      SCOPED_TRACE(fmt::format("{} {}", place, order));
      const std::string name = fmt::format("{}{}", place, order);
      expect_same(
          on_gpu(name, large(offloaded(place, {fmt::format("--device.fake_order={}", order)}))),
          expected);
    }
  }
}

// Muon's matrices are pieces of their own, and f32 values have no masters.
TEST_F(GpuOffload, ServesEveryOptimizer) {
  for (const char* kind : {"muon", "sgd", "lion"}) {
    SCOPED_TRACE(kind);
    const Settings settings =
        large({std::string("--optim.kind=") + kind, "--train.dtype=f32", "--optim.lr=0.001"});
    const std::string name = kind;
    expect_same(on_gpu(name + "-host", with(settings, offloaded("host"))), on_gpu(name, settings));
  }
}

TEST_F(GpuOffload, IsSharedAmongRanksAndGoesOn) {
  const Settings settings = large({"--train.micro_batch=1", "--dp.zero=2", "--train.steps=4"});
  const Ended expected = on_gpu("memory", settings, 2);
  expect_same(on_gpu("host", with(settings, offloaded("host")), 2), expected);
  // From the host's memory to a file, to the GPU's.
  EXPECT_EQ(on_gpu("parts", with(settings, offloaded("host")), 2, 1).outcome.step, 1);
  EXPECT_EQ(on_gpu("parts", with(settings, offloaded("file")), 2, 3).outcome.step, 3);
  expect_same(on_gpu("parts", settings, 2), expected);
}

TEST_F(GpuOffload, RefusesWhatItCannotDo) {
  EXPECT_THAT(error_of(
                  [&] {
                    on_gpu("bad", small({"--offload.optimizer=host", "--offload.dir=somewhere"}));
                  },
                  ErrorKind::kUser),
              HasSubstr("offload.dir"));
  EXPECT_THAT(
      error_of([&] { on_cpu("bad", small({"--offload.optimizer=host"})); }, ErrorKind::kUser),
      AllOf(HasSubstr("offload.optimizer"), HasSubstr("needs device.kind cuda or fake_cuda")));
  EXPECT_THAT(error_of(
                  [&] {
                    on_gpu("bad", small({"--offload.optimizer=file", "--offload.params=file"}));
                  },
                  ErrorKind::kUser),
              AllOf(HasSubstr("offload.params"), HasSubstr("set device.kind=cpu")));
}

}  // namespace
}  // namespace atl::train
