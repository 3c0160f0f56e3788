#pragma once

// Runs of ranks that send less, on GPUs that the host plays.

#include "atoll/train/gpu_testing.h"

namespace atl::train {

/// Each way to send less: dp.compress, and behind a plus dp.compress_weights.
inline constexpr const char* kCompressedWays[] = {"int8",     "int4+int4",   "none+int4",
                                                  "powersgd", "onebit_adam", "zeroone_adam"};

/// A way to send less, as a test's parameter.
class GpuCompressed : public GpuRuns, public ::testing::WithParamInterface<const char*> {
 protected:
  /// After a step of AdamW signs are sent, of 0/1 Adam in every second step.
  static Settings compressed(const std::string& how, const Settings& more = {}) {
    const std::size_t plus = std::min(how.find('+'), how.size());
    Settings all = small({"--train.micro_batch=1", "--train.steps=5", "--train.batch_size=4",
                          "--dp.bucket_mib=0.01", "--dp.compress=" + how.substr(0, plus)});
    if (plus < how.size()) all.push_back("--dp.compress_weights=" + how.substr(plus + 1));
    if (how.ends_with("_adam")) all.push_back("--dp.compress_warmup=0.2");
    if (how == "zeroone_adam") all.push_back("--dp.compress_local_steps=2");
    const bool updates_all = how == "powersgd" || how == "zeroone_adam";
    if (!updates_all) all.push_back("--dp.zero=1");
    return with(all, more);
  }
  void expect_as_on_cpu(int ranks) {
    const Settings settings = compressed(GetParam(), {"--eval.every=0"});
    const Ended cpu = on_cpu("cpu", settings, ranks), gpu = on_gpu("gpu", settings, ranks);
    EXPECT_LT(largest_difference(values_of(cpu.records, "loss"), values_of(gpu.records, "loss")),
              1e-3);
    EXPECT_EQ(values_of(cpu.records, "bytes_sent"), values_of(gpu.records, "bytes_sent"));
    EXPECT_EQ(values_of(gpu.records, "bytes_sent").size(), 5u);
    EXPECT_NE(gpu.values, cpu.values) << "it was a CPU that trained";
  }
};

/// The way as the name of a test has it.
inline std::string way_of(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '+', '_');
  return name;
}

}  // namespace atl::train
