#pragma once

// One log for the process, on standard error; standard output belongs to the command's result.

#include <fmt/format.h>

#include <string_view>

namespace atl::log {

/// Lines below this level are dropped.
enum class Level { kDebug, kInfo, kWarning, kError };

/// Sets that level, for the whole program; kInfo to begin with.
void set_level(Level level);
/// Writes one line to stderr; the functions below format for it.
void write(Level level, std::string_view message);

/// True when the environment variable ATOLL_LOG (a comma-separated list) names `topic`; `ops`
/// makes each op say which implementation served it and why the ones before it declined.
bool topic_enabled(std::string_view topic);

/// What only its author wants to know; the others as their names say.
template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace atl::log
