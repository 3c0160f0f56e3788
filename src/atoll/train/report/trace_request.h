#pragma once

// How a run that trains is asked for a trace: a file in its directory, which the rank that leads
// looks for between steps and takes away.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace atl::train {

/// What is asked for.
struct TraceRequest {
  std::string id;  ///< letters, digits and '-': names the file of the trace
  std::int64_t steps = 5;
};

/// Where the trace of a request is when it is there.
std::filesystem::path trace_path(const std::filesystem::path& run_dir, const std::string& id);

/// Asks the run. Throws Error(kUser) when it has not taken the request before yet.
void ask_for_trace(const std::filesystem::path& run_dir, const TraceRequest& request);

/// Takes a request back; false when the run has it.
bool take_back_request(const std::filesystem::path& run_dir);

/// The request that waits, which is gone then; nothing where none does. One that is not a request
/// is told in the log. Makes the directory of traces. Never throws: training goes on.
std::optional<TraceRequest> take_trace_request(const std::filesystem::path& run_dir) noexcept;

/// The reverse of what ask_for_trace() writes; throws Error(kDamaged) naming `origin`.
TraceRequest parse_trace_request(const std::string& text, const std::string& origin);

}  // namespace atl::train
