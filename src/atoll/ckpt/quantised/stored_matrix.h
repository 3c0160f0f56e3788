#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/ops/packed/packed.h"
#include "atoll/tensor/spec.h"

namespace atl::ckpt {

class HfDirectory;

/// A matrix (out, in) as a file has it, in few bits or in plain floats.
struct StoredMatrix {
  Shape shape;                                      ///< (out, in), also of GPT-2's weights
  Dtype dtype = Dtype::kF32;                        ///< what its numbers are rounded to
  std::shared_ptr<const ops::PackedFormat> format;  ///< of the rows in memory
  std::vector<std::string> tensors;                 ///< of the files, that it is made of
  /// Fills format->bytes() bytes from the files, which must still be open.
  std::function<void(std::byte* packed)> fill;
};

/// A float matrix of a directory as its file has it: f32, bf16 or f16. Throws Error(kUser) naming
/// file and tensor where it is none. `directory` must outlive the result.
StoredMatrix stored_floats(const HfDirectory& directory, const std::string& name);

/// Widens a matrix as it is read, without its bytes in memory first but for one copy of them.
/// `out` has shape.num_elements() elements.
void widen_stored(const StoredMatrix& matrix, std::span<float> out);

}  // namespace atl::ckpt
