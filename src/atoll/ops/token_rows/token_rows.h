#pragma once

#include <cstdint>
#include <span>

#include "atoll/ops/run.h"

namespace atl::ops {

// Rows of a table that stand in place of a table's own for a few tokens, and columns of logits that
// belong to these tokens. On a CPU.

/// For each token its row in a small table, or -1: it has none. Of as many entries as there are
/// tokens.
using TokenSlots = std::span<const std::int32_t>;

/// y[i] = scale rows[slots[tokens[i]]] + beside[i] where the token has a row.
/// tokens: i32 (R), each below the number of slots  rows: (N, C)  y: (R, C)  beside: as y, or
/// undefined: none. f32, f64 or bf16, rounded once.
void place_token_rows(Run& run, double scale, TokenSlots slots, Tensor tokens, Tensor rows,
                      Tensor beside, Tensor y);
/// drows[slots[tokens[i]]] += scale dy[i] where the token has a row, in the order of i whatever the
/// number of threads. drows in dy's compute dtype.
void place_token_rows_backward(Run& run, double scale, TokenSlots slots, Tensor tokens, Tensor dy,
                               Tensor drows);

/// taken[i, k] = logits[i, tokens[k]], which then is 0.  logits: (R, V)  taken: (R, N), f32 or f64
void take_columns(Run& run, std::span<const std::int64_t> tokens, Tensor logits, Tensor taken);
/// logits[i, tokens[k]] = given[i, k].
void put_columns(Run& run, std::span<const std::int64_t> tokens, Tensor given, Tensor logits);

}  // namespace atl::ops
