#pragma once

// A model that gets more tokens than its directory has: more rows in its embedding and head.

#include <cstdint>

#include "atoll/nn/model.h"
#include "atoll/tensor/tensor.h"

namespace atl::model_dir {

/// The same model with so many tokens; also in the config.json that it came from.
nn::ModelConfig with_vocab_size(nn::ModelConfig config, std::int64_t vocab_size);

/// The same model with a head of its own in place of a tied one; likewise.
nn::ModelConfig with_own_head(nn::ModelConfig config);

/// Gives the rows from `old_rows` on the mean of the rows before: what transformers'
/// resize_token_embeddings draws new rows around (mean_resizing), without the spread of 1e-9 times
/// the rows' covariance. Summed in double, row by row, and rounded once, so that every layout of
/// ranks has the same bits.  table: (V, C), f32 or bf16
void fill_new_rows(const Tensor& table, std::int64_t old_rows);

}  // namespace atl::model_dir
