#include "atoll/base/check.h"
#include "atoll/parallel/compress/compression.h"
#include "atoll/parallel/compress/reductions.h"

namespace atl::parallel {

std::unique_ptr<CompressedReduction> make_compressed_reduction(const FlatLayout& layout, int rank,
                                                               const CompressionOptions& options) {
  if (!options.reduces()) return nullptr;
  ATOLL_CHECK(compute_dtype(layout.flat().dtype) == Dtype::kF32, "gradients of {}",
              layout.flat().to_string());
  if (options.gradients == Compression::kPowerSgd) return make_powersgd(layout, rank, options);
  return make_quantized_reduction(layout, rank, options);
}

}  // namespace atl::parallel
