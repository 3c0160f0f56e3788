#include "atoll/island/simulator.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "atoll/base/error.h"
#include "atoll/island/simulation.h"

namespace atl::island {
namespace {

using Kind = SimulatedFault::Kind;

std::string all(const SimulationReport& report) {
  std::string text = fmt::format("seed {}", report.seed);
  for (const std::string& violation : report.violations) text += "\n  " + violation;
  return text;
}

TEST(Simulator, RandomSchedulesKeepEveryPromise) {
  const char* count = std::getenv("ATOLL_SCHEDULES");
  const int schedules = count != nullptr ? std::atoi(count) : 2000;
  const char* first = std::getenv("ATOLL_FIRST_SCHEDULE");
  const std::uint64_t begin = first != nullptr ? std::strtoull(first, nullptr, 10) : 0;
  int num_failed = 0;
  for (int i = 0; i < schedules && num_failed < 5; ++i) {
    const std::uint64_t seed = begin + static_cast<std::uint64_t>(i);
    SimulationOptions options = random_simulation(seed);
    if (std::getenv("ATOLL_TRACE") != nullptr)
      options.trace = [](const std::string& line) { fmt::print("{}\n", line); };
    const SimulationReport report = simulate(options, seed);
    if (report.violations.empty()) continue;
    ++num_failed;
    ADD_FAILURE() << all(report);
  }
}

}  // namespace
}  // namespace atl::island
