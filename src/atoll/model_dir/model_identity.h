#pragma once

#include <string>

#include "atoll/model_dir/model_path.h"

namespace atl::model_dir {

/// 32 hexadecimal digits, the same for copies of a model wherever they lie: of config.json and of
/// the files of weights (an adapter's and its base model's), their names and sizes. Files of more
/// than 256 MiB are read at 4096 places, evenly over the file. Tells models apart by accident, not
/// by intent. Throws Error(kUser) where a file cannot be read.
std::string model_identity(const ModelPath& directory);

}  // namespace atl::model_dir
