// Compressed data parallel on GPUs that the host plays trains as on CPUs, in as many bytes. That
// codes have a CPU's bits is shown by parallel/compress/gpu_compression_test.cpp.

#include "atoll/train/gpu_compressed_testing.h"

namespace atl::train {
namespace {

INSTANTIATE_TEST_SUITE_P(Ways, GpuCompressed, ::testing::ValuesIn(kCompressedWays), way_of);

TEST_P(GpuCompressed, TrainsAsOnTheCpuInAsManyBytes) {
  expect_as_on_cpu(2);
}

}  // namespace
}  // namespace atl::train
