#include "atoll/cli/models/weights.h"

#include "atoll/base/error.h"
#include "atoll/model_dir/stored_weights.h"
#include "atoll/ops/int8/int8_arithmetic.h"

namespace atl::cli {

serve::KeepStored keep_of(const model_dir::ModelPath& model, serve::Weights weights) {
  if (weights != serve::Weights::kStored) return {};
  return [model](nn::Model& built) {
    model_dir::keep_stored(model, model_dir::StoredWeights::kAll, /*freezes=*/true, built);
  };
}

double least_bytes(serve::Weights weights) {
  if (weights == serve::Weights::kF32) return 4;
  return weights == serve::Weights::kStored ? 0.25 : 1;
}

void add_weights(ArgumentParser& parser, WeightsArguments& arguments) {
  parser
      .add_option("--weights", arguments.weights,
                  "f32; bf16: half the memory and faster, exact for a model that is stored so; "
                  "int8: rounded to 8 bits, a quarter and faster still; w8a8: these, and what they "
                  "are multiplied with in 8 bits too, for faster prompts; stored: linear layers in "
                  "the 4, 8 or 16 bits of their files, with the numbers of f32")
      .one_of({"f32", "bf16", "int8", "w8a8", "stored"})
      .show_default();
  parser
      .add_option("--int8", arguments.int8,
                  "what multiplies with --weights=w8a8: amx, vnni (AVX-512), vector (any CPU), or "
                  "auto, the best of these that the CPU has, the default; all give the same bits")
      .one_of({"auto", "vector", "vnni", "amx"});
}

serve::Weights take_weights(const WeightsArguments& arguments, const std::string& device) {
  using ops::Int8Arithmetic;
  if (!arguments.int8.empty() && (device == "cuda" || device == "fake_cuda")) {
    throw user_error("--int8={} chooses instructions of a CPU, and the device is {}; leave it out",
                     arguments.int8, device);
  }
  if (arguments.weights == "w8a8") {
    ops::set_int8_arithmetic(arguments.int8.empty() ? Int8Arithmetic::kAuto
                                                    : ops::int8_arithmetic_named(arguments.int8));
    return serve::Weights::kInt8;
  }
  if (!arguments.int8.empty()) {
    throw user_error(
        "--int8={} says what multiplies with --weights=w8a8, and the weights are {}; leave it out",
        arguments.int8, arguments.weights);
  }
  ops::set_int8_arithmetic(Int8Arithmetic::kF32);
  return serve::parse_weights(arguments.weights);
}

}  // namespace atl::cli
