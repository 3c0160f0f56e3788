#include "atoll/island/simulation/simulation.h"

#include "atoll/island/simulation/simulator.h"

namespace atl::island {

SimulationReport simulate(const SimulationOptions& options, std::uint64_t seed) {
  Simulator simulator(options, seed);
  simulator.run(options.max_seconds);
  return simulator.report();
}

}  // namespace atl::island
