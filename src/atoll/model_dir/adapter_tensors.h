#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/ckpt/safetensors/safetensors.h"

namespace atl::model_dir {

inline constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";

/// What an adapter's tensor is about, without what libraries put around it: "base_model.model." in
/// front, the adapter's name "default", wrappers of PEFT (base_layer, modules_to_save) and of torch
/// (_orig_mod, _fsdp_wrapped_module, ...). So "model.norm.weight" of
/// "base_model.model.model.norm.modules_to_save.default.weight".
std::string plain_name(std::string_view name);

/// The tensors of an adapter_model.safetensors by their plain names. Remembers which were asked
/// for, so that none is passed over.
class AdapterTensors {
 public:
  /// Throws Error(kUser) or Error(kDamaged) naming the file, also where it has a tensor twice.
  explicit AdapterTensors(const std::filesystem::path& directory);

  const ckpt::SafetensorsFile& file() const { return file_; }
  bool contains(const std::string& plain) const { return names_.contains(plain); }
  /// The name in the file. Throws Error(kUser) where the file has no such tensor.
  const std::string& name_of(const std::string& plain) const;
  /// Takes note that a tensor is used, and gives its name in the file. Throws as name_of().
  std::string use(const std::string& plain);
  /// The elements of a tensor of that name in the file. Throws Error(kUser) naming file and tensor
  /// for another number of dimensions than `shape` has, or other sizes.
  std::vector<float> read(const std::string& name, const Shape& shape) const;
  /// Throws Error(kUser) naming the first tensor that nobody used.
  void refuse_unused() const;

 private:
  ckpt::SafetensorsFile file_;
  std::map<std::string, std::string> names_;  // plain -> in the file
  std::set<std::string> used_;
};

}  // namespace atl::model_dir
