#include "atoll/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "atoll/base/terminal.h"

namespace atl::log {

namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made =
        spdlog::stderr_color_mt("atoll", wants_color(STDERR_FILENO) ? spdlog::color_mode::always
                                                                    : spdlog::color_mode::never);
    made->set_pattern("%^%l%$: %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  logger().set_level(kLevels[static_cast<int>(level)]);
}

void write(Level level, std::string_view message) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  // Where both go to one terminal, what was said before stands before.
  std::fflush(stdout);
  logger().log(kLevels[static_cast<int>(level)], message);
}

bool topic_enabled(std::string_view topic) {
  const char* value = std::getenv("ATOLL_LOG");
  std::string_view rest = value == nullptr ? "" : value;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    if (rest.substr(0, comma) == topic) return true;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return false;
}

}  // namespace atl::log
