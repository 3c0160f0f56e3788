#include "atoll/device/gpu_figures.h"

#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl {
namespace {

TEST(GpuFigures, AreFoundByWhatADriverCallsAGpu) {
  ASSERT_NE(find_gpu_figures("NVIDIA H100 80GB HBM3"), nullptr);
  EXPECT_EQ(find_gpu_figures("NVIDIA H100 80GB HBM3")->gb_per_s, 3350);
  EXPECT_EQ(find_gpu_figures("NVIDIA H100 PCIe")->bf16_tflops, 756);
  EXPECT_EQ(find_gpu_figures("NVIDIA GeForce RTX 4090")->memory_gb, 24);
  EXPECT_EQ(find_gpu_figures("NVIDIA A100 80GB PCIe")->gb_per_s, 1935);
  EXPECT_EQ(find_gpu_figures("NVIDIA T4"), nullptr);
}

TEST(GpuFigures, AreThoseOfGpusThatCouldBe) {
  for (const GpuFigures& figures : all_gpu_figures()) {
    // Operations for each byte at which products stop waiting for memory: 100 to 500 so far.
    const double balance = 1e3 * figures.bf16_tflops / figures.gb_per_s;
    EXPECT_GT(balance, 100) << figures.name;
    EXPECT_LT(balance, 500) << figures.name;
    EXPECT_EQ(find_gpu_figures(figures.name), &figures);
  }
}

TEST(GpuFigures, AreFoundByWhatAPersonWrites) {
  EXPECT_EQ(gpu_figures_named("h100").name, "H100 80GB HBM3");
  EXPECT_EQ(gpu_figures_named("H100-PCIe").name, "H100 PCIe");
  EXPECT_EQ(gpu_figures_named("A100").memory_gb, 80);
  EXPECT_EQ(gpu_figures_named("a100 40gb").name, "A100-SXM4-40GB");
  EXPECT_EQ(gpu_figures_named("RTX-4090").name, "RTX 4090");
  for (const GpuFigures& figures : all_gpu_figures()) {
    EXPECT_EQ(&gpu_figures_named(figures.name), &figures);
  }
}

TEST(GpuFigures, NameAllWhereOneIsUnknown) {
  for (const char* unknown : {"V100", "", " - ", "H100 H200"}) {
    try {
      gpu_figures_named(unknown);
      ADD_FAILURE() << unknown;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("L40S"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace atl
