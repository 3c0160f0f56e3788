#pragma once

// What happens in a study, in the order of the store.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "atoll/tune/search/trial.h"

namespace atl::tune {

/// One thing that happened. Members that a kind has no use for are as they are here.
struct Event {
  enum class Kind : std::uint8_t {
    kOpen,     ///< the tuner was started
    kSuggest,  ///< a trial, by the searcher or as a fork of another
    kGoOn,     ///< `trial` is to reach `step`
    kStart,    ///< its process was started, to reach `step`
    kResult,   ///< what it has shown at `step`
    kEnd,      ///< it is over
  };
  Kind kind = Kind::kOpen;
  int trial = -1;
  std::int64_t step = 0;  ///< kSuggest: the target

  Units units;
  std::vector<std::pair<std::string, std::string>> settings;
  std::string note;
  int bracket = 0;
  int member = -1;
  int parent = -1;
  std::int64_t fork_step = 0;

  std::vector<double> values;  ///< NaN: diverged
  std::int64_t tokens = 0;
  double seconds = 0;

  End end = End::kNone;
  std::string why;

  std::string worker;  ///< kStart: whom it is leased to; "": a process of this machine
};

/// "suggest", ...
const char* name_of(Event::Kind kind);

/// What of an event the store keeps beside kind and trial, as a JSON object of one line.
std::string to_json(const Event& event);
/// The reverse. Throws Error(kDamaged) that begins with `origin`.
Event parse_event(const std::string& kind, int trial, const std::string& json,
                  const std::string& origin);

}  // namespace atl::tune
