#pragma once

// A run for other programs: CSV, Weights & Biases, Trackio, and a page that opens without a server.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/watch/run_reader.h"

namespace atl::watch {

/// metrics.jsonl as CSV (RFC 4180): step, time, and a column for each metric in order of first
/// appearance; a metric that a record has not is empty. Numbers read back as the same double.
void export_csv(const RunData& run, const std::filesystem::path& file);

/// A directory offline-run-DATE-ID with run-ID.wandb, as W&B writes it without a network: `wandb
/// sync DIRECTORY` uploads it. Returns the directory, which is made in `parent`. Throws
/// Error(kUser) when it is there already.
std::filesystem::path export_wandb(const RunData& run, const std::filesystem::path& parent);

/// `directory`/atoll.db: a Trackio project of the name atoll, with the run added to those that it
/// has; TRACKIO_DIR=directory shows it. Throws Error(kUser) when it has a run of this name.
std::filesystem::path export_trackio(const RunData& run, const std::filesystem::path& directory);

/// One page with the curves of all runs, their settings, alerts, notes, samples, and what differs.
/// It asks nothing of any host, and has no script.
std::string export_html(const std::vector<RunData>& runs);

/// The CRC-32 of zlib (reflected, polynomial 0xedb88320).
std::uint32_t crc32(std::string_view data);

/// The last part of a run's path: what other programs call it.
std::string short_name(const RunData& run);

/// "2026-11-25T03:12:00.250000+00:00".
std::string iso_time(double unix_seconds);

}  // namespace atl::watch
