#pragma once

#include <memory>

#include "atoll/comm/world.h"

namespace atl::comm {

/// What MPI is told.
struct MpiOptions {
  /// Ranks of one host talk through windows of shared memory of ours instead of MPI's.
  bool shared_memory = true;
};

/// Whether this binary was built with MPI.
bool has_mpi();

/// The ranks that mpirun or srun started, this process among them; a process that neither started
/// is a world of one. All of them must call it. MPI ends with the last World of the process and
/// cannot be opened again after. A collective that fails leaves MPI without an orderly end: mpirun
/// then ends the other ranks when this one exits. Throws Error(kUser) when this binary has no MPI,
/// Error(kInternal) naming what MPI refused.
std::unique_ptr<World> open_mpi(const WorldOptions& options, const MpiOptions& mpi = {});

}  // namespace atl::comm
