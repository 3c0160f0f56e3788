#pragma once

#include "atoll/tensor/file_arena.h"

namespace atl::parallel {

/// A store that keeps what this rank holds of parameters in a file, and its gradients where they
/// lie in a vector of that part.
class InFile {
 public:
  virtual ~InFile() = default;

  /// Asks `file` for them. After the store's own request().
  virtual void request_file(MemoryPlan& file) = 0;
  /// The file must outlive the store; before its bind().
  virtual void bind_file(FileArena& file) = 0;
  /// Whether gradients lie there too.
  virtual bool has_gradients_in_file() const = 0;
};

}  // namespace atl::parallel
