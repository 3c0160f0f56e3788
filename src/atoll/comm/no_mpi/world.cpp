#include "atoll/comm/mpi/world.h"
#include "atoll/base/error.h"

namespace atl::comm {

bool has_mpi() {
  return false;
}

std::unique_ptr<World> open_mpi(const WorldOptions&, const MpiOptions&) {
  throw user_error(
      "backend mpi cannot be used: this atoll was built without MPI; install the "
      "package libopenmpi-dev and build again, or use another backend");
}

}  // namespace atl::comm
