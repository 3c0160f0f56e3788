#pragma once

#include <functional>
#include <memory>

#include "atoll/nn/model.h"
#include "atoll/ops/packed/packed.h"

namespace atl::nn {

/// The format in which a tensor of a model's files is to be kept, or null where it is not.
using FormatOfTensor =
    std::function<std::shared_ptr<const ops::PackedFormat>(const FileTensor& tensor)>;

/// Keeps the weights of Linears, of experts, token embeddings and heads in the formats of their
/// files from now on: those that are frozen and for all of whose tensors `format_of` has a format.
/// `freezes`: also those that are not frozen, which then are, for a model that is not trained.
/// Returns their elements. To be called before the parameters get memory, and after add_lora.
/// Throws Error(kUser) where ranks share products or experts, or on a GPU.
std::int64_t pack_weights(Model& model, const FormatOfTensor& format_of, bool freezes);

}  // namespace atl::nn
