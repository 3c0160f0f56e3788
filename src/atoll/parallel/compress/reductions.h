#pragma once

// Makes each kind of CompressedReduction, one kind a file; make_reduction.cpp chooses among them.

#include <memory>

#include "atoll/parallel/compress/compression.h"

namespace atl::parallel {

/// kInt8 and kInt4.
std::unique_ptr<CompressedReduction> make_quantized_reduction(const FlatLayout& layout, int rank,
                                                              const CompressionOptions& options);

/// kPowerSgd.
std::unique_ptr<CompressedReduction> make_powersgd(const FlatLayout& layout, int rank,
                                                   const CompressionOptions& options);

}  // namespace atl::parallel
