#pragma once

// How a command that generates keeps weights, and what multiplies with them.

#include <string>

#include "atoll/cli/argument_parser.h"
#include "atoll/model_dir/model_path.h"
#include "atoll/serve/rounded_store.h"

namespace atl::cli {

/// What of a model stays as `weights` say in the bits of its file; empty where they are not
/// serve::Weights::kStored.
serve::KeepStored keep_of(const model_dir::ModelPath& model, serve::Weights weights);

/// What a weight takes at least, in bytes.
double least_bytes(serve::Weights weights);

/// What the command line says.
struct WeightsArguments {
  std::string weights = "f32";  ///< f32, bf16, int8, stored; or w8a8: int8, and activations too
  std::string int8;             ///< what multiplies for w8a8; empty: what the CPU does fastest
};

/// Declares --weights and --int8 on `parser`.
void add_weights(ArgumentParser& parser, WeightsArguments& arguments);

/// Has this process multiply as they say on a device of this kind (device.kind), and returns how
/// weights are kept. Throws Error(kUser) where they do not fit together, or the CPU lacks what
/// --int8 says.
serve::Weights take_weights(const WeightsArguments& arguments, const std::string& device = "cpu");

}  // namespace atl::cli
