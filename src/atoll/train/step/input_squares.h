#pragma once

// Which columns of a model's matrices a text uses: what importance matrices are made of.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "atoll/data/token_source.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// The mean square of each input of each linear layer, by the names that files give the layer's
/// weights: (in) numbers each, the same for those that the layer holds fused. Embeddings, head and
/// experts are not among them.
using InputSquares = std::map<std::string, std::vector<float>>;

/// Runs the model over the first windows of a text, which evaluate() cuts alike, until `max_tokens`
/// are predicted. Changes no parameter. The state has one rank and computes in f32; with GPUs each
/// layer's input is copied to the host. Tokens that fill up a last window count like the others: a
/// caller asks for whole windows.
InputSquares input_squares(TrainState& state, Stream& stream, const data::TokenSource& source,
                           std::int64_t max_tokens);

}  // namespace atl::train
