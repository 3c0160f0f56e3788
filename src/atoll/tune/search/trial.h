#pragma once

// What is known of a study's trials.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/tune/search/space.h"

namespace atl::tune {

/// What a trial has shown after so many steps.
struct Measurement {
  std::int64_t step = 0;
  std::vector<double> values;  ///< one for each objective, as measured; NaN: it diverged
  std::int64_t tokens = 0;     ///< that it took to come here from the measurement before
  double seconds = 0;          ///< of its process, for the same
};

/// How a trial ended.
enum class End : std::uint8_t {
  kNone,      ///< it has not
  kFinished,  ///< all its steps
  kStopped,   ///< by the scheduler, or because the study is over
  kDiverged,  ///< a loss that is not finite
  kRefused,   ///< `atoll train` does not take these settings together
};
const char* name_of(End end);

/// A run of a study.
struct Trial {
  int number = 0;
  Units units;
  std::vector<std::pair<std::string, std::string>> settings;  ///< key, value as TOML
  std::string note;                                           ///< of the searcher, for itself
  int bracket = 0;                                            ///< hyperband
  int member = -1;                                            ///< pbt
  int parent = -1;             ///< whose checkpoint it began from; -1: none
  std::int64_t fork_step = 0;  ///< that checkpoint's
  std::int64_t target = 0;     ///< the step that it is to reach
  int starts = 0;              ///< of its process
  std::string worker;          ///< that it was leased to and has not given it back; "": none
  std::vector<Measurement> measured;
  End end = End::kNone;
  std::string why;

  /// The steps that it has taken and shown.
  std::int64_t reached() const { return measured.empty() ? fork_step : measured.back().step; }
  bool is_over() const { return end != End::kNone; }
  bool has_failed() const { return end == End::kDiverged || end == End::kRefused; }
  /// Whether it has steps to take.
  bool is_due() const { return !is_over() && reached() < target; }
  const Measurement* at(std::int64_t step) const;
};

}  // namespace atl::tune
