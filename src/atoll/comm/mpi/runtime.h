#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "atoll/base/error.h"

namespace atl::comm::mpi {

/// Throws Error(kInternal) naming the call and MPI's words, unless `code` is MPI_SUCCESS.
void check(int code, const char* call);

/// MPI from its beginning to its end, of which a process has one.
class MpiRuntime {
 public:
  /// The one that is open, or a new one. Throws Error(kUser) when MPI was already ended.
  static std::shared_ptr<MpiRuntime> get();  // shared by all Worlds over MPI: the last one ends it

  MpiRuntime();
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  /// MPI_Finalize waits for all ranks; after a failure nobody may come, so it is left out.
  void abandon() noexcept { abandoned_ = true; }

 private:
  bool ours_ = false;
  bool abandoned_ = false;
};

}  // namespace atl::comm::mpi
