#pragma once

#include <cstdint>
#include <string>

namespace atl::serve {

/// One of the machines that have a model's layers between them.
struct StageStatus {
  std::string address;
  std::int64_t first_layer = 0, end_layer = 0;  ///< the end is behind the last one
  bool is_up = false;
  std::string problem;            ///< why it is not up
  double step_seconds = 0;        ///< of its latest steps, computing alone
  double round_trip_seconds = 0;  ///< of a heartbeat
};

}  // namespace atl::serve
