#pragma once

// Exports runs to CSV, Weights & Biases, Trackio, and an HTML page that needs no server.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/watch/run_reader.h"

namespace atl::watch {

/// Writes metrics.jsonl as CSV (RFC 4180): step, time, and a column for each metric in order of
/// first appearance. A metric that a record lacks is empty. Numbers read back as the same double.
void export_csv(const RunData& run, const std::filesystem::path& file);

/// Writes a directory offline-run-DATE-ID in `parent` with run-ID.wandb, as W&B writes it without a
/// network; `wandb sync DIRECTORY` uploads it. Returns the directory. Throws Error(kUser) when the
/// directory exists.
std::filesystem::path export_wandb(const RunData& run, const std::filesystem::path& parent);

/// Adds the run to `directory`/atoll.db, a Trackio project with the name atoll, which is made if
/// needed; Trackio shows it with TRACKIO_DIR=directory. Returns the file. Throws Error(kUser) when
/// the project has a run of this name.
std::filesystem::path export_trackio(const RunData& run, const std::filesystem::path& directory);

/// One HTML page with the curves of all runs, their alerts, notes, samples, settings, and the
/// settings that differ. The page loads nothing from any host, and has no script.
std::string export_html(const std::vector<RunData>& runs);

/// The CRC-32 of zlib (reflected, polynomial 0xedb88320).
std::uint32_t crc32(std::string_view data);

/// The last part of a run's path: the run's name in other programs.
std::string short_name(const RunData& run);

/// "2026-11-25T03:12:00.250000+00:00".
std::string iso_time(double unix_seconds);

}  // namespace atl::watch
