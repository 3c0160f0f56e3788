#pragma once

// What a server does over time, as records that `atoll watch` draws.

#include "atoll/metrics/record.h"
#include "atoll/serve/api/metrics.h"

namespace atl::serve::api {

/// All that was counted up to a moment.
struct LoadCounts {
  GeneratorStats stats;
  HistogramCounts queue, first_token, inter_token;

  static LoadCounts of(const RequestTimes& times, const Generator& generator);
};

/// What happened between two moments that lie `seconds` apart: rates, latencies, and how full queue
/// and cache are at the end. A figure of which there is none, such as the latency of no token, is
/// left out.
metrics::Record load_record(const LoadCounts& before, const LoadCounts& now, double seconds);

}  // namespace atl::serve::api
