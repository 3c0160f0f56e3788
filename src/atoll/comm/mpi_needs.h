#pragma once

// What Open MPI needs of a machine. Where it is missing Open MPI says so in forty lines of its own,
// or waits for ever; so it is looked at before.

#include <filesystem>

namespace atl::comm {

/// Where Open MPI keeps files of this machine's ranks.
struct MpiPlaces {
  std::filesystem::path session;  ///< TMPDIR and its like, or /tmp
  std::filesystem::path memory;   ///< of shared memory; empty: other ways were chosen
};

/// As the environment says.
MpiPlaces mpi_places();

/// Throws Error(kUser) naming a place that cannot be written to or has too little room, and the way
/// out.
void check_mpi_places(const MpiPlaces& places);

/// Throws Error(kUser) where srun has started this process with a PMI (--mpi=pmi2) that Open MPI
/// has no component for in `libraries`, the directory of its own library; nothing where that is not
/// Open MPI's, or nobody has.
void check_mpi_pmi(const std::filesystem::path& libraries);

}  // namespace atl::comm
