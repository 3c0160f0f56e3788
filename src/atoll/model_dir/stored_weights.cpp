#include "atoll/model_dir/stored_weights.h"

#include <memory>

#include "atoll/base/error.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/quantised/quantised.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/nn/models/packed.h"

namespace atl::model_dir {

std::string quantisation_of(const ModelPath& directory) {
  const ckpt::HfDirectory base(base_directory(directory));
  return ckpt::QuantisedWeights(base).method();
}

void keep_stored(const ModelPath& directory, StoredWeights which, bool freezes, nn::Model& model) {
  if (holds_adapter(directory)) {
    throw user_error(
        "{} is an adapter, which cannot be merged into weights that stay in the bits of their "
        "file; take them wide (model.held_as=wide, --weights=f32), or merge it before with `atoll "
        "export --merge`",
        directory.string());
  }
  const ckpt::HfDirectory base(directory.directory());
  const ckpt::QuantisedWeights quantised(base);
  const auto format_of =
      [&](const nn::FileTensor& tensor) -> std::shared_ptr<const ops::PackedFormat> {
    for (const std::string& name : {tensor.name, tensor.name.substr(tensor.name.find('.') + 1)}) {
      if (const ckpt::StoredMatrix* stored = quantised.find(name)) return stored->format;
      // In a quantised model floats stay as they are too: one parameter may have rows of both.
      const bool is_kept = which == StoredWeights::kAll || !quantised.empty();
      if (is_kept && !tensor.transposed && base.contains(name)) {
        return ckpt::stored_floats(base, name).format;
      }
    }
    return nullptr;
  };
  nn::pack_weights(model, format_of, freezes);
}

}  // namespace atl::model_dir
