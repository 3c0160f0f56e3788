#pragma once

#include <string>

#include "atoll/plan/ranking.h"

namespace atl::plan {

/// A table for people: a line a layout, best first, then why others were refused, each reason once
/// with an example and how many it took. `all`: each refused layout on a line of its own.
std::string ranking_table(const Ranking& ranking, const Question& question, bool all);

/// The same as one line of JSON: "layouts" and "refused", seconds and bytes.
std::string ranking_json(const Ranking& ranking, const Question& question);

}  // namespace atl::plan
