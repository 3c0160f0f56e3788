#pragma once

// What `atoll runs` tells about a run of islands, from its coordinator's ledger.

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>

#include "atoll/island/ledger/ledger.h"

namespace atl::cli {

/// The ledger in the directory of a coordinator or of a run with islands, or `path` itself when
/// that is a file. Throws Error(kUser) when there is none.
std::filesystem::path find_ledger(const std::filesystem::path& path);

/// The ledger as tables of at most 100 columns: the run, its starts, islands, sums and the audit's
/// verdict; with `outer_steps` every attempt at one and who contributed what.
std::string describe_run(const island::LedgerContent& ledger, bool outer_steps);

/// Why the run's policy changed what, a line a change, and how well it predicted.
std::string explain_run(const island::LedgerContent& ledger);

/// What describe_run() says as JSON, with nothing rounded or cut; and what islands have measured of
/// their links. Of attempts at outer steps at most the newest `most`.
std::string run_json(const island::LedgerContent& ledger, bool outer_steps,
                     std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace atl::cli
