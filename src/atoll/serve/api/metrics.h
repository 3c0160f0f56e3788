#pragma once

// What a server tells Prometheus.

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

#include "atoll/metrics/prometheus_text.h"
#include "atoll/serve/batch/generator.h"

namespace atl::serve::api {

struct HistogramCounts;

/// How often times fell between bounds. Any thread may call it.
class Histogram {
 public:
  /// Upper bounds in seconds: from one step of a small model to a long answer of a large one.
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                         0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0, 300.0};

  void observe(double seconds);
  HistogramCounts counts() const;
  /// Adds a family of that name to a page.
  void write(metrics::PrometheusText& page, const char* name, const char* help) const;

 private:
  mutable std::mutex mutex_;
  std::array<std::uint64_t, kBounds.size() + 1> counts_ = {};
  double sum_ = 0;
};

/// What a Histogram has counted.
struct HistogramCounts {
  /// Of each bound, times up to it and above the one before; the last are those above all.
  std::array<std::uint64_t, Histogram::kBounds.size() + 1> of_bound = {};

  std::uint64_t total() const;
  /// The time in seconds below which a share `q` of all lies, as if those between two bounds were
  /// spread evenly; the last bound for what is above it. There must be one time at least.
  double quantile(double q) const;
  /// What has been counted since `earlier`.
  HistogramCounts operator-(const HistogramCounts& earlier) const;
};

/// Times of generated sequences, measured where answers are made.
struct RequestTimes {
  Histogram queue;        ///< until the prompt begins to be read
  Histogram prefill;      ///< from there to the first token
  Histogram first_token;  ///< from the request to the first token
  Histogram inter_token;  ///< from each token to the next
  Histogram decode;       ///< from the first token to the end
  Histogram whole;        ///< from the request to the end
};

/// Adds all families of a server to a page; `generator`: null while the model is being read.
void add_metrics(metrics::PrometheusText& page, const RequestTimes& times,
                 const Generator* generator);

}  // namespace atl::serve::api
