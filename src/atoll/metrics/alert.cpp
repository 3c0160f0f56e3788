#include "atoll/metrics/alert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/json.h"

namespace atl::metrics {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kKinds = {"nonfinite",       "spike",     "divergence", "stall",
                               "throughput",      "straggler", "rank_lost",  "island_lost",
                               "checkpoint_late", "disk_low"};
static_assert(kKinds.size() == kNumAlertKinds);
constexpr std::array kSeverities = {"info", "warning", "error"};

}  // namespace

const char* name_of(AlertKind kind) {
  return kKinds.at(static_cast<std::size_t>(kind));
}

const char* name_of(Severity severity) {
  return kSeverities.at(static_cast<std::size_t>(severity));
}

const std::vector<std::string>& alert_names() {
  static const std::vector<std::string> names(kKinds.begin(), kKinds.end());
  return names;
}

AlertKind alert_kind(std::string_view name) {
  const auto* const at = std::find(kKinds.begin(), kKinds.end(), name);
  if (at != kKinds.end()) return static_cast<AlertKind>(at - kKinds.begin());
  throw user_error("there is no alert '{}'; the kinds are {}", name,
                   fmt::join(kKinds.begin(), kKinds.end(), ", "));
}

std::string to_jsonl(const Alert& alert) {
  const Json line = {{"time", alert.time_s},        {"step", alert.step},
                     {"kind", name_of(alert.kind)}, {"severity", name_of(alert.severity)},
                     {"message", alert.message},    {"command", alert.command}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Alert parse_alert(std::string_view line, const std::string& origin) {
  try {
    const Json root = parse_ordered_json(line, origin);
    Alert alert;
    root.at("time").get_to(alert.time_s);
    alert.step = whole_number(root.at("step"));
    alert.kind = alert_kind(root.at("kind").get<std::string>());
    const auto severity = root.at("severity").get<std::string>();
    const auto* const at = std::find(kSeverities.begin(), kSeverities.end(), severity);
    if (at == kSeverities.end()) throw user_error("there is no severity '{}'", severity);
    alert.severity = static_cast<Severity>(at - kSeverities.begin());
    root.at("message").get_to(alert.message);
    root.at("command").get_to(alert.command);
    return alert;
  } catch (const Error& error) {
    throw damaged_error("{}: {}; mend the line, or move the file away", origin, error.what());
  } catch (const Json::exception& error) {
    throw damaged_error("{} is not an alert ({}); mend the line, or move the file away", origin,
                        json_reason(error));
  }
}

std::vector<Alert> read_alerts(const std::filesystem::path& run_dir) {
  const std::filesystem::path path = run_dir / kAlertsFile;
  std::vector<Alert> alerts;
  if (!path_exists(path)) return alerts;
  const std::string whole = read_file(path, kMaxLogBytes);
  std::string_view text = whole;
  int number = 1;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n'), ++number) {
    alerts.push_back(parse_alert(text.substr(0, end), fmt::format("{}:{}", path.string(), number)));
    text.remove_prefix(end + 1);
  }
  return alerts;
}

std::string to_line(const Alert& alert) {
  std::string line = fmt::format("alert [{}] step {}: {}. Run: {}", name_of(alert.kind), alert.step,
                                 alert.message, alert.command);
  std::replace_if(
      line.begin(), line.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return line;
}

std::string host_of_url(const std::string& url) {
  const std::size_t begin = url.find("://") + 3;
  const std::size_t end = std::min(url.find_first_of("/?#", begin), url.size());
  const std::size_t at = url.rfind('@', end);
  const std::size_t host = at != url.npos && at > begin ? at + 1 : begin;
  return url.substr(host, end - host);
}

std::string shell_word(const std::string& word) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./=:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace atl::metrics
