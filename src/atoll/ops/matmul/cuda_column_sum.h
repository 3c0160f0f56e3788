#pragma once

#include "atoll/ops/matmul/cpu_column_sum.h"

namespace atl::ops::cuda {

/// See ops/matmul/matmul.h.
Declined column_sum(Run& run, const ColumnSumArgs& args);
Declined add_column_sums(Run& run, const AddColumnSumsArgs& args);

}  // namespace atl::ops::cuda
