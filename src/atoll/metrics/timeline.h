#pragma once

// What a rank does when, and a text of it that trace viewers open.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "atoll/metrics/record.h"

namespace atl::metrics {

/// Something that a rank did, from when to when.
struct Span {
  using Clock = std::chrono::steady_clock;
  /// On which of its threads.
  enum class Track : std::uint8_t { kMain, kCollectives };

  std::string name;           ///< "forward layers.3"
  const char* category = "";  ///< what viewers filter and colour by; a literal
  Track track = Track::kMain;
  Clock::time_point begin, end;
  std::vector<std::pair<const char*, Value>> details = {};  ///< shown when it is selected
};

/// The spans of one rank, no more than kMost. Safe to use from several threads.
class Timeline {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 17;

  void add(Span span);
  /// In the order in which they ended.
  std::vector<Span> spans() const;
  /// How many came when there was no more room.
  std::int64_t num_lost() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
  std::int64_t lost_ = 0;
};

/// Adds a span from here to the end of the block; costs nothing where `timeline` is null.
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

/// Who has done what a Timeline says, for those who look at many.
struct TimelineOwner {
  int rank = 0;
  std::string name;                     ///< "rank 3"
  std::string remark;                   ///< shown beside the name; may be empty
  Span::Clock::time_point origin = {};  ///< of its own clock: where the common time is 0
};

/// The spans as events of the Trace Event Format (Chrome's JSON), with commas between, without the
/// brackets of the array: a process per rank and a thread per track, in microseconds.
std::string to_trace_events(const Timeline& timeline, const TimelineOwner& owner);

}  // namespace atl::metrics
