#pragma once

// What a rank does at which time, and that as text which trace viewers can open.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "atoll/metrics/record.h"

namespace atl::metrics {

/// One thing that a rank did, with its begin and its end.
struct Span {
  using Clock = std::chrono::steady_clock;
  /// The thread of the rank that did it.
  enum class Track : std::uint8_t { kMain, kCollectives };

  std::string name;           ///< "forward layers.3"
  const char* category = "";  ///< what viewers filter and colour by; a literal
  Track track = Track::kMain;
  Clock::time_point begin, end;
  std::vector<std::pair<const char*, Value>> details = {};  ///< shown when the span is selected
};

/// The spans of one rank, kMost at most. Safe to use from several threads.
class Timeline {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 17;

  void add(Span span);
  /// A copy of all spans, in the order in which they were added.
  std::vector<Span> spans() const;
  /// How many spans add() has dropped because there were kMost already.
  std::int64_t num_lost() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
  std::int64_t lost_ = 0;
};

/// Adds a span of track kMain that lasts from here to the end of the block; does nothing where
/// `timeline` is null.
class ScopedSpan {
 public:
  ScopedSpan(Timeline* timeline, const char* name, const char* category = "step")
      : timeline_(timeline), name_(name), category_(category) {
    if (timeline_ != nullptr) begin_ = Span::Clock::now();
  }
  ~ScopedSpan();
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

 private:
  Timeline* timeline_;
  const char* name_;
  const char* category_;
  Span::Clock::time_point begin_;
};

/// The rank that a Timeline is of, for a viewer that shows several ranks.
struct TimelineOwner {
  int rank = 0;
  std::string name;                     ///< "rank 3"
  std::string remark;                   ///< shown beside the name; may be empty
  Span::Clock::time_point origin = {};  ///< of the rank's own clock: where the common time is 0
};

/// The spans as events of the Trace Event Format (Chrome's JSON), separated by commas, without the
/// brackets of the array. A rank is a process, a track is a thread; times are in microseconds.
std::string to_trace_events(const Timeline& timeline, const TimelineOwner& owner);

}  // namespace atl::metrics
