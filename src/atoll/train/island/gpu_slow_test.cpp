// Islands whose ranks compute on GPUs that the host plays: the host encodes what they exchange,
// with each codec, and they train as on CPUs.

#include "atoll/island/coordinator/service.h"
#include "atoll/train/gpu_testing.h"

namespace atl::train {
namespace {

class GpuIslands : public GpuRuns, public ::testing::WithParamInterface<const char*> {
 protected:
  Settings settings(const std::string& run) {
    coordinators_.push_back(std::make_unique<island::CoordinatorService>(
        island::ServiceOptions{.dir = root_ / (run + "-ledger")}));
    return small(
        {"--island.coordinator=" + coordinators_.back()->address(), "--island.listen=127.0.0.1:0",
         "--island.name=lyon", "--outer.islands=1", "--outer.grace_s=30", "--outer.inner_steps=2",
         std::string("--outer.codec=") + GetParam(), "--train.micro_batch=1", "--eval.every=0"});
  }

 private:
  std::vector<std::unique_ptr<island::CoordinatorService>> coordinators_;
};

INSTANTIATE_TEST_SUITE_P(Codecs, GpuIslands,
                         ::testing::Values("f32", "int8", "e3m0", "topk:64/4096", "sign_prune:50"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find(':'));
                         });

TEST_P(GpuIslands, TrainAsOnCpus) {
  const Ended cpu = on_cpu("cpu", settings("cpu"), 2), gpu = on_gpu("gpu", settings("gpu"), 2);
  EXPECT_EQ(values_of(gpu.records, "loss").size(), 4u);
  EXPECT_LT(largest_difference(values_of(cpu.records, "loss"), values_of(gpu.records, "loss")),
            1e-3);
}

}  // namespace
}  // namespace atl::train
