#pragma once

// JSON for the page. Series are written piece by piece, because a JSON document in memory would be
// many times as large as its text.

#include <string>
#include <string_view>
#include <vector>

#include "atoll/watch/run_log.h"
#include "atoll/watch/run_table.h"

namespace atl::watch {

/// Appends a number as the shortest text that reads back as the same double; null for NaN and
/// infinities.
void append_number(std::string& json, double number);
/// Appends a string in quotes; bytes that are not UTF-8 become U+FFFD.
void append_string(std::string& json, std::string_view text);

/// The answer to a chart's query.
std::string to_json(const SeriesAnswer& answer);
/// What the page's list of runs shows of a run.
std::string summary_json(const WatchedRun& run);
/// What the page shows of a run beside its series: settings, marks, texts, alerts, notes.
std::string detail_json(const WatchedRun& run);

}  // namespace atl::watch
