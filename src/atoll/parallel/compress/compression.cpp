#include "atoll/parallel/compress/compression.h"

#include <fmt/format.h>

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

std::string residual_name(int rank) {
  return fmt::format("owed.{}", rank);
}

}  // namespace atl::parallel
