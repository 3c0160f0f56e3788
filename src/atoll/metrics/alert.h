#pragma once

// What an alert says, and its line in alerts.jsonl.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace atl::metrics {

/// What may be wrong with a run.
enum class AlertKind : std::uint8_t {
  kNonfinite,       ///< loss or gradient of a step is not finite
  kSpike,           ///< the loss of a step is far above those before it
  kDivergence,      ///< the mean loss has risen for good
  kStall,           ///< no step ends any more
  kThroughput,      ///< steps take more than twice their usual time
  kStraggler,       ///< one rank is slower than the others, step after step
  kRankLost,        ///< a rank has died
  kIslandLost,      ///< an island is gone, or silent
  kCheckpointLate,  ///< a checkpoint takes much longer than those before it
  kDiskLow,         ///< no room for the next checkpoints
};
inline constexpr std::size_t kNumAlertKinds = 10;

/// How bad it is.
enum class Severity : std::uint8_t { kInfo, kWarning, kError };

/// Something that a person should know now.
struct Alert {
  double time_s = 0;      ///< since 1970
  std::int64_t step = 0;  ///< steps of the run so far
  AlertKind kind = AlertKind::kNonfinite;
  Severity severity = Severity::kWarning;
  std::string message;  ///< one sentence without full stop
  std::string command;  ///< what to run next, as a shell takes it
};

/// "checkpoint_late".
const char* name_of(AlertKind kind);
/// "warning".
const char* name_of(Severity severity);
/// The names of all kinds, as alerts.off takes them.
const std::vector<std::string>& alert_names();
/// The kind of a name; throws Error(kUser) naming the known ones.
AlertKind alert_kind(std::string_view name);

/// The file of a run's directory that has its alerts.
inline constexpr const char* kAlertsFile = "alerts.jsonl";

/// A line of that file without its end: an object of time, step, kind, severity, message, command.
std::string to_jsonl(const Alert& alert);
/// The reverse. Throws Error(kDamaged) naming `origin` for anything else.
Alert parse_alert(std::string_view line, const std::string& origin);
/// The alerts of a run's directory, oldest first; none where there is no such file. A last line
/// without its end is not one; throws as above, naming file and line.
std::vector<Alert> read_alerts(const std::filesystem::path& run_dir);

/// "alert [spike] step 120: ... Run: ...", without what could move a terminal's cursor.
std::string to_line(const Alert& alert);
/// HOST:PORT of an http:// or https:// address, without user, key and path: what may be told of it.
std::string host_of_url(const std::string& url);
/// `word` as a shell takes it for one word: in quotes where that is needed.
std::string shell_word(const std::string& word);

}  // namespace atl::metrics
