#pragma once

// Importance matrices: for each matrix of a model, the mean square of every input column over a
// text. They say which errors of a weight matter. llama.cpp's llama-imatrix makes them, in two
// formats; both are read.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace atl::ckpt {

/// An importance matrix.
struct Imatrix {
  /// By the name of the matrix in GGUF ("blk.0.attn_q.weight"): a number of 0 or more for each
  /// column; of stacked experts for each column of each expert, one after the other.
  std::map<std::string, std::vector<float>, std::less<>> columns;
  std::string name;                   ///< the file's, for what is written about it
  std::vector<std::string> datasets;  ///< the texts that it says it was made from
  std::int64_t chunks = 0;            ///< pieces of text; 0: not said
};

/// Reads llama-imatrix's GGUF file (tensors "<name>.in_sum2" and "<name>.counts") or its older
/// binary file (imatrix.dat). An expert that no token reached gets ones. Throws Error(kUser) naming
/// the file when it is neither, Error(kDamaged) naming file and entry for lengths beyond the file,
/// numbers that are negative or not finite, and sums without counts.
Imatrix read_imatrix(const std::filesystem::path& path);

}  // namespace atl::ckpt
