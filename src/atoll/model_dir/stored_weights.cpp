#include "atoll/model_dir/stored_weights.h"

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/quantised/quantised.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/nn/models/model_tensors.h"
#include "atoll/nn/models/packed.h"

namespace atl::model_dir {

namespace {

// A run builds its model several times.
void tell_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(line).second) log::info("{}", line);
}

// Experts are multiplied in floats alone: their memory is not that of the file.
void tell_widened_experts(const ModelPath& directory, const nn::FormatOfTensor& format_of,
                          nn::Model& model) {
  std::set<const nn::Param*> widened;
  std::int64_t elements = 0;
  for (const nn::ModelTensor& tensor : nn::model_tensors(model)) {
    if (tensor.kind != nn::ModuleKind::kExpert || tensor.param->is_packed()) continue;
    if (!format_of(tensor.file) || !widened.insert(tensor.param).second) continue;
    elements += tensor.param->spec.shape.num_elements();
  }
  if (widened.empty()) return;
  tell_once(fmt::format(
      "{}: the {} weights of experts are widened to {}; other matrices stay in the bits of their "
      "files",
      directory.string(), format_count(elements), dtype_name((*widened.begin())->spec.dtype)));
}

}  // namespace

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
  tell_widened_experts(directory, format_of, model);
}

}  // namespace atl::model_dir
