#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "atoll/ckpt/hf/directory.h"

namespace atl::ckpt {

/// The tensors of blocks behind a model's last that predict further tokens, as DeepSeek V3's files
/// have them ("num_nextn_predict_layers"). Neither transformers nor atoll runs them.
class FurtherBlocks {
 public:
  /// Throws Error(kDamaged) naming the file where config.json is not JSON.
  explicit FurtherBlocks(const HfDirectory& directory);

  bool has(std::string_view tensor) const;

 private:
  std::vector<std::string> prefixes_;
};

}  // namespace atl::ckpt
