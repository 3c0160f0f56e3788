#include "atoll/comm/flight_record.h"

#include <unistd.h>

#include <ctime>

#include "atoll/base/files/file.h"

namespace atl::comm {

namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return {text, length};
}

}  // namespace

PeerError with_flight_record(const PeerError& error, const World& world,
                             const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / fmt::format("flight-rank{}.txt", world.rank());
  try {
    std::filesystem::create_directories(directory);
    write_file(path, fmt::format("rank {} of {} ({}), process {}, {}\nended by: {}\nits last "
                                 "collectives, the newest last:\n{}",
                                 world.rank(), world.size(), world.backend(), ::getpid(), utc_now(),
                                 error.what(), world.recorder().describe(~std::size_t{0})));
  } catch (const std::exception& failure) {
    return {error.rank(), fmt::format("{}; the last calls of rank {} could not be written ({})",
                                      error.what(), world.rank(), failure.what())};
  }
  return {error.rank(), fmt::format("{}; the last calls of rank {} are in {}", error.what(),
                                    world.rank(), path.string())};
}

}  // namespace atl::comm
