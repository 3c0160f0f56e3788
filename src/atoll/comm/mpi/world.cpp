#include "atoll/comm/mpi/world.h"

#include <utility>

#include "atoll/comm/mpi/network.h"
#include "atoll/comm/shared/windows.h"

namespace atl::comm {

bool has_mpi() {
  return true;
}

std::unique_ptr<World> open_mpi(const WorldOptions& options, const MpiOptions& mpi) {
  std::unique_ptr<Network> network =
      std::make_unique<mpi::MpiNetwork>(mpi::MpiRuntime::get(), options.timeout_s);
  std::unique_ptr<Transport> transport = mpi.shared_memory && network->size() > 1
                                             ? shared::with_windows(std::move(network), options)
                                             : std::move(network);
  return std::make_unique<World>(std::move(transport), options);
}

}  // namespace atl::comm
