#pragma once

// Alerts: what is wrong with a run, as a value and as a line of alerts.jsonl.

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
  kDivergence,      ///< the mean loss has risen and stays risen
  kStall,           ///< no step ends any more
  kThroughput,      ///< steps take more than twice their usual time
  kStraggler,       ///< one rank is slower than the others, step after step
  kRankLost,        ///< a rank has died
  kIslandLost,      ///< an island is gone, or no longer answers
  kCheckpointLate,  ///< a checkpoint takes much longer than those before it
  kDiskLow,         ///< the disk has no room for the next checkpoints
};
inline constexpr std::size_t kNumAlertKinds = 10;

/// How bad it is.
enum class Severity : std::uint8_t { kInfo, kWarning, kError };

/// One alert: something that a person should know now.
struct Alert {
  double time_s = 0;      ///< Unix seconds
  std::int64_t step = 0;  ///< steps of the run so far
  AlertKind kind = AlertKind::kNonfinite;
  Severity severity = Severity::kWarning;
  std::string message;  ///< one sentence without full stop
  std::string command;  ///< a shell command to run next
};

/// The name of a kind: "checkpoint_late".
const char* name_of(AlertKind kind);
/// The name of a severity: "warning".
const char* name_of(Severity severity);
/// The names of all kinds, as alerts.off takes them.
const std::vector<std::string>& alert_names();
/// The kind with this name. Throws Error(kUser) that lists the known names.
AlertKind alert_kind(std::string_view name);

/// The file in a run's directory that holds its alerts.
inline constexpr const char* kAlertsFile = "alerts.jsonl";

/// A line of that file without its end: an object of time, step, kind, severity, message, command.
std::string to_jsonl(const Alert& alert);
/// The reverse of to_jsonl. Throws Error(kDamaged) naming `origin` for anything else.
Alert parse_alert(std::string_view line, const std::string& origin);
/// The alerts in a run's directory, oldest first; none where the file is missing. Ignores a last
/// line without a line end. Throws as parse_alert, naming file and line.
std::vector<Alert> read_alerts(const std::filesystem::path& run_dir);

/// "alert [spike] step 120: ... Run: ...". Control characters become blanks: they could move the
/// terminal's cursor.
std::string to_line(const Alert& alert);
/// HOST:PORT of an http:// or https:// address. User, password and path are left out, because they
/// may be secret.
std::string host_of_url(const std::string& url);
/// `word` in the form that a shell reads as one word: in quotes where that is needed.
std::string shell_word(const std::string& word);

}  // namespace atl::metrics
