#pragma once

#include <algorithm>
#include <cstdint>

namespace atl::ops::cpu {

/// How many of `num_rows` rows a task takes, a multiple of 4, so that a task reads at most
/// `task_bytes` of the rows' `total_bytes` and 2, 4 or 8 threads get as many tasks each: the last
/// task of an uneven number would keep all others waiting.
inline std::int64_t row_grain(std::int64_t num_rows, std::int64_t total_bytes,
                              std::int64_t task_bytes) {
  if (total_bytes <= task_bytes) return std::max<std::int64_t>(num_rows, 1);
  const std::int64_t tasks = (total_bytes + 8 * task_bytes - 1) / (8 * task_bytes) * 8;
  const std::int64_t rows = (num_rows + tasks - 1) / tasks;
  return std::max<std::int64_t>(4, (rows + 3) / 4 * 4);
}

}  // namespace atl::ops::cpu
