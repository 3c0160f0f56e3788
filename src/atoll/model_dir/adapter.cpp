#include "atoll/model_dir/adapter.h"

#include <set>
#include <span>

#include "atoll/base/files/paths.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/parallel/store/whole_state.h"

namespace atl::model_dir {

namespace fs = std::filesystem;

bool holds_adapter(const fs::path& directory) {
  return path_exists(directory / kAdapterConfigFile);
}

void merge_adapter(const fs::path& directory, nn::Model& model) {
  const AdapterMerge merge(directory, model);
  std::set<const nn::Param*> done;
  for (const nn::ModelTensor& tensor : nn::model_tensors(model)) {
    if (done.insert(tensor.param).second) merge.add_to(*tensor.param, tensor.param->value);
  }
}

void load_adapter(const fs::path& directory, parallel::ParamStore& store, ThreadPool& threads) {
  const fs::path path = directory / kAdapterWeightsFile;
  const ckpt::SafetensorsSet files(std::span(&path, 1));
  parallel::fill_pieces(
      store.layout(), parallel::pieces_to_fill(store), &threads,
      [&](const std::string& /*values*/, const nn::Param& param, const Tensor& whole) {
        ckpt::read_param(files, {&param, whole});
      });
  store.values_filled();
}

}  // namespace atl::model_dir
