#pragma once

#include "atoll/ops/run.h"

namespace atl::ops {

// Biases of groups of rows that lie together, as those of experts: group g has the rows
// [offsets[g], offsets[g + 1]) of R, offsets i32 (G + 1) ascending from 0. bias has N elements of
// each group, (G N). On a CPU only.

/// rows += each row's group's bias.  rows: (R, N), f32, f64 or bf16, rounded once  bias: (G N),
/// f32, f64 or bf16. Rows after the last group stay.
void add_group_bias(Run& run, Tensor bias, Tensor offsets, Tensor rows);

/// Each row becomes its group's bias, and 0 after the last group.
void fill_group_bias(Run& run, Tensor bias, Tensor offsets, Tensor rows);

/// dbias += the sums of each group's rows, in the order of the rows. dbias: (G N) in rows' compute
/// dtype.
void add_group_sums(Run& run, Tensor rows, Tensor offsets, Tensor dbias);

}  // namespace atl::ops
