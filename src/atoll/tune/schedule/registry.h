#pragma once

// The searchers and schedulers there are: one line each.

#include <memory>
#include <string>
#include <vector>

#include "atoll/tune/schedule/scheduler.h"
#include "atoll/tune/search/searcher.h"

namespace atl::tune {

/// "grid", "random", ...
std::vector<std::string> searcher_names();
/// The searcher of this name, which is one of searcher_names().
std::unique_ptr<Searcher> make_searcher(const std::string& name);

/// "none", "median", ...
std::vector<std::string> scheduler_names();
/// The scheduler of this name, which is one of scheduler_names().
std::unique_ptr<Scheduler> make_scheduler(const std::string& name, const Rules& rules);

}  // namespace atl::tune
