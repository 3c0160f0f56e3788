#include "atoll/nn/models/adapted.h"

#include "atoll/nn/models/family.h"
#include "atoll/nn/models/numbers.h"

namespace atl::nn {

std::unique_ptr<Model> build_adapted_model(const ModelConfig& config, const BuildOptions& options,
                                           const LoraOptions& lora) {
  std::unique_ptr<Model> model = build_model(config, options);
  add_lora(*model, lora);
  if (options.tensor_size == 1) return model;
  BuildOptions alone = options;
  alone.tensor_size = 1;
  alone.tensor_rank = 0;
  const std::unique_ptr<Model> whole = build_model(config, alone);
  add_lora(*whole, lora);
  number_as_in(*whole, *model);
  return model;
}

}  // namespace atl::nn
