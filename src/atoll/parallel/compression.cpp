#include "atoll/parallel/compression.h"

#include "atoll/base/check.h"
#include "atoll/parallel/reductions.h"

namespace atl::parallel {

const char* compression_name(Compression compression) {
  switch (compression) {
    case Compression::kNone:
      return "";
    case Compression::kInt8:
      return "int8";
    case Compression::kInt4:
      return "int4";
    case Compression::kPowerSgd:
      return "powersgd";
    case Compression::kOneBitAdam:
      return "onebit_adam";
    case Compression::kZeroOneAdam:
      return "zeroone_adam";
  }
  return "";
}

std::string owed_name(int rank) {
  return fmt::format("owed.{}", rank);
}

std::unique_ptr<CompressedReduction> make_compressed_reduction(const FlatLayout& layout, int rank,
                                                               const CompressionOptions& options) {
  if (!options.reduces()) return nullptr;
  ATOLL_CHECK(compute_dtype(layout.flat().dtype) == Dtype::kF32, "gradients of {}",
              layout.flat().to_string());
  if (options.gradients == Compression::kPowerSgd) return make_powersgd(layout, rank, options);
  return make_quantized_reduction(layout, rank, options);
}

}  // namespace atl::parallel
