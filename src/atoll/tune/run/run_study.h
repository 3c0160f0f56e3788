#pragma once

// A study's trials as processes of this machine.

#include <functional>
#include <string>
#include <vector>

#include "atoll/tune/run/open_study.h"
#include "atoll/tune/trial/history.h"
#include "atoll/tune/trial/store.h"
#include "atoll/tune/trial/study.h"

namespace atl::tune {

/// How a call of run_study ended.
struct StudyOutcome {
  int signal = 0;  ///< that asked it to stop; 0: the study is over
  int num_trials = 0;
};

/// Told of a study under way, whenever something has happened: what its events have come to, and
/// how many trials train now.
using StudyWatcher = std::function<void(const History& history, int num_running)>;

/// Makes the study's directory and store, or goes on from what they hold, and trains trials until
/// the study is over or a signal comes; `program` is this one. Trials end with this process,
/// however it ends. Prints a line for each result. Throws Error: the store stays whole, and the
/// same call goes on from it.
StudyOutcome run_study(const Study& study, const std::string& program,
                       const StudyWatcher& watcher = {});

/// Seconds that tuners of this study were at work: from each start to the last event before the
/// next.
double seconds_at_work(const std::vector<LoggedEvent>& events);

/// "optim.lr=0.003 train.batch_size=4".
std::string settings_text(const Trial& trial);

}  // namespace atl::tune
