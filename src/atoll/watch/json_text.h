#pragma once

// JSON that is written piece by piece, where a document in memory would be many times its text.

#include <string>
#include <string_view>
#include <vector>

#include "atoll/watch/run_log.h"
#include "atoll/watch/run_table.h"

namespace atl::watch {

/// Appends a number as the shortest text that reads back as the same; null for NaN and infinities.
void append_number(std::string& json, double number);
/// Appends a string in quotes; bytes that are no UTF-8 become U+FFFD.
void append_string(std::string& json, std::string_view text);

/// The parts of series that a chart draws.
std::string to_json(const SeriesAnswer& answer);
/// What a list of runs shows of one.
std::string summary_json(const WatchedRun& run);
/// All that is known of one beside its series: settings, marks, texts, alerts, notes.
std::string detail_json(const WatchedRun& run);

}  // namespace atl::watch
