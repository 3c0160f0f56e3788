// Ranks that compute on GPUs that the host plays, in every layout: the losses of CPUs in the same
// layout and of one GPU, the same bits where CPUs have the same bits, in any order of streams, and
// after a stop.

#include "atoll/train/gpu_testing.h"

namespace atl::train {
namespace {

class GpuLayouts : public GpuRuns {
 protected:
  // f32: sums in another order; and AdamW's first updates go by the sign of a gradient.
  static constexpr double kBound = 1e-3;

  struct Layout {
    int ranks = 1;
    Settings settings;
    std::string name() const { return fmt::format("{} {}", ranks, fmt::join(settings, " ")); }
  };

  static Settings with_layout(const Settings& more = {}) {
    return small(with({"--train.batch_size=4", "--train.micro_batch=1", "--train.steps=3",
                       "--model.num_hidden_layers=3", "--model.tie_word_embeddings=false",
                       "--dp.bucket_mib=0.01", "--optim.clip=0.2", "--eval.every=3"},
                      more));
  }
  void expect_same_bits(const Ended& ended, const Ended& expected) {
    EXPECT_TRUE(ended.values == expected.values);
    for (const char* key : {"loss", "grad_norm", "held_out_loss"}) {
      EXPECT_EQ(values_of(ended.records, key), values_of(expected.records, key)) << key;
    }
  }
  void expect_near(const Ended& ended, const Ended& expected, double bound = kBound) {
    for (const char* key : {"loss", "held_out_loss"}) {
      EXPECT_FALSE(values_of(ended.records, key).empty());
      EXPECT_LT(largest_difference(values_of(ended.records, key), values_of(expected.records, key)),
                bound)
          << key;
    }
  }
  // The same layout on CPUs and GPUs.
  Ended expect_as_on_cpus(const Layout& layout, const Settings& common) {
    const Settings settings = with(common, layout.settings);
    const Ended cpu = on_cpu(next_name("cpu"), settings, layout.ranks);
    const Ended gpu = on_gpu(next_name("gpu"), settings, layout.ranks);
    expect_near(gpu, cpu);
    EXPECT_NE(gpu.values, cpu.values) << "it was a CPU that trained";
    return gpu;
  }
  std::string next_name(const std::string& name) { return fmt::format("{}{}", name, number_++); }

 private:
  int number_ = 0;
};

TEST_F(GpuLayouts, HaveTheLossesOfCpusAndOfOneGpu) {
  const Settings common = with_layout({"--model.num_key_value_heads=4", "--train.dropout=0"});
  const Ended one = on_gpu("one", common);
  for (const Layout& layout :
       std::vector<Layout>{{2, {"--parallel.tp=2"}},
                           {2, {"--parallel.cp=2", "--parallel.cp_attention=ulysses"}},
                           {2, {"--parallel.cp=2", "--parallel.cp_attention=ring"}},
                           {4, {"--parallel.cp=2", "--parallel.tp=2"}},
                           {4, {"--parallel.pp=2", "--dp.zero=2"}},
                           {8, {"--parallel.tp=2", "--parallel.pp=2", "--dp.zero=1"}}}) {
    SCOPED_TRACE(layout.name());
    expect_near(expect_as_on_cpus(layout, common), one);
  }
}

TEST_F(GpuLayouts, PipelinesHaveTheBitsOfOneGpu) {
  const Ended one = on_gpu("one", with_layout());
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    SCOPED_TRACE(schedule);
    const Settings layout = {"--parallel.pp=2", std::string("--parallel.schedule=") + schedule,
                             "--device.fake_order=4"};
    expect_same_bits(on_gpu(schedule, with_layout(layout), 2), one);
  }
}

TEST_F(GpuLayouts, StagesAndZeroChangeNoBitBesideSharedProducts) {
  const Settings dtype = {"--train.dtype=bf16", "--parallel.tp=2"};
  const Ended expected = on_gpu("tp", with_layout(dtype), 4);
  expect_same_bits(
      on_gpu("zero3", with_layout(with(dtype, {"--dp.zero=3", "--device.fake_order=2"})), 4),
      expected);
  expect_same_bits(
      on_gpu(
          "stages",
          with_layout(with(dtype, {"--dp.zero=2", "--parallel.pp=2", "--parallel.schedule=zb-v"})),
          8),
      expected);
}

TEST_F(GpuLayouts, OrdersOfStreamsGiveTheSameBits) {
  for (const Layout& layout :
       std::vector<Layout>{{2, {"--parallel.tp=2", "--train.recompute=full"}},
                           {4, {"--parallel.cp=2", "--parallel.pp=2"}}}) {
    SCOPED_TRACE(layout.name());
    const Settings settings =
        with_layout(with(layout.settings, {"--train.dtype=bf16", "--data.packing=masked",
                                           "--optim.masters=stochastic", "--train.steps=3"}));
    const Ended first = on_gpu(next_name("order"), settings, layout.ranks);
    for (int order = 1; order < 4; ++order) {
      const Settings ordered = with(settings, {fmt::format("--device.fake_order={}", order)});
      const Ended other = on_gpu(next_name("order"), ordered, layout.ranks);
      EXPECT_TRUE(all_tensors(other.outcome.checkpoint) == all_tensors(first.outcome.checkpoint));
    }
  }
}

TEST_F(GpuLayouts, StoppedGoOnInTheirLayoutAndInAnother) {
  const Settings settings =
      with_layout({"--train.dtype=bf16", "--parallel.tp=2", "--parallel.pp=2", "--dp.zero=2"});
  const Ended whole = on_gpu("whole", settings, 8);
  EXPECT_EQ(on_gpu("parts", settings, 8, /*stop_after=*/1).outcome.step, 1);
  const Ended rest = on_gpu("parts", with(settings, {"--device.fake_order=3"}), 8);
  EXPECT_TRUE(all_tensors(rest.outcome.checkpoint) == all_tensors(whole.outcome.checkpoint));

  EXPECT_EQ(on_gpu("moved", settings, 8, /*stop_after=*/1).outcome.step, 1);
  const Settings ring = with_layout({"--train.dtype=bf16", "--parallel.cp=2"});
  expect_near(on_gpu("moved", ring, 2), whole, 0.02);
}

class GpuLora : public GpuLayouts {
 protected:
  // A base of three steps on the CPU; runs after it adapt it.
  void make_base(const std::string& family) {
    base_ = on_cpu("base-" + family,
                   small({"--model.family=" + family,
                          family == "gpt2" ? "--model.num_key_value_heads=0" : "--eval.every=0"}))
                .outcome.checkpoint.string();
    inline_model_ = false;
  }
  Settings adapted(const Settings& more = {}) const {
    return with({"--model.from=" + base_, "--lora.rank=3", "--lora.targets=all-linear",
                 "--train.context=16", "--train.steps=4", "--optim.lr=0.02", "--train.dropout=0",
                 "--eval.every=4", "--eval.max_tokens=64", "--dp.bucket_mib=0.001"},
                more);
  }
  std::string base_;
};

TEST_F(GpuLora, AdaptsEveryFamilyAsOnTheCpu) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "gpt2"}) {
    SCOPED_TRACE(family);
    inline_model_ = true;
    make_base(family);
    const Ended gpu = expect_as_on_cpus({1, {}}, adapted());
    EXPECT_NE(values_of(gpu.records, "loss").front(), values_of(gpu.records, "loss").back());
  }
}

TEST_F(GpuLora, SharesStateAmongRanksAndResumes) {
  make_base("llama");
  const Settings settings = adapted({"--train.dtype=bf16", "--train.micro_batch=1"});
  const Ended two = on_gpu("two", settings, 2);
  expect_same_bits(on_gpu("zero3", with(settings, {"--dp.zero=3", "--device.fake_order=2"}), 2),
                   two);
  expect_near(on_gpu("tp", with(settings, {"--parallel.tp=2"}), 4), two, 0.02);
  EXPECT_EQ(on_gpu("parts", settings, 2, /*stop_after=*/2).outcome.step, 2);
  const Ended rest = on_gpu("parts", with(settings, {"--device.fake_order=5"}), 2);
  EXPECT_TRUE(rest.values == two.values);
}

}  // namespace
}  // namespace atl::train
