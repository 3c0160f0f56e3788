#pragma once

// The rows that experts work on: every choice of a token is one row, and each expert's rows lie
// together. Indices are i32. T tokens with K choices each make T K rows at most, whatever the
// router says, so memory is known beforehand.

#include "atoll/ops/run.h"

namespace atl::ops {

/// Gives each choice a row: experts one after the other, tokens ascending within each. An expert
/// takes `capacity` of them, the first; the others have no row.
///
/// experts: (T, K)  places: (T, K), the row of a choice, or -1.  sources: (T K), the choice
/// t K + j that a row is of; -1 in the rows left over at the end.  offsets: (E + 1), expert e has
/// the rows [offsets[e], offsets[e + 1]). Throws Error(kInternal) unless the choices with a row and
/// those without are all; on a GPU nobody looks. Needs assign_rows_scratch_bytes of scratch.
void assign_rows(Run& run, Tensor experts, std::int64_t capacity, Tensor places, Tensor sources,
                 Tensor offsets);
std::size_t assign_rows_scratch_bytes(std::int64_t choices, std::int64_t num_experts);

/// rows[i] = x[token of row i]; 0 in rows left over.  x: (T, C)  rows: (T K, C), same dtype.
void gather_rows(Run& run, Tensor x, Tensor sources, Tensor rows);

/// y[t] = sum over j of weights[t, j] rows[places[t, j]], in the order of j, rounded once; choices
/// without a row add nothing. `weights`, of the compute dtype, may be undefined: all are 1.
/// rows: (T K, C)  places, weights: (T, K)  y: (T, C).
void combine_rows(Run& run, Tensor rows, Tensor places, Tensor weights, Tensor y);

/// What weights in combine_rows mean for the backward pass through an expert's last product
/// o = h W^T: from dh, the gradient of h as if the weight were 1, it makes dweights and scales
/// h and d (which is linear in dh) by their row's weight.
///
/// h, dh: (T K, F)  d: (T K, D)  weights, dweights: (T, K). dweights of choices without a row is 0.
void weigh_rows(Run& run, Tensor weights, Tensor sources, Tensor dh, Tensor h, Tensor d,
                Tensor dweights);

}  // namespace atl::ops
