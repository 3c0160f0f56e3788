#include "atoll/base/processes/resident.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace atl {

namespace {

// proc(5): lines of "VmRSS:     1234 kB".
std::size_t from_status(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::strtoull(line.c_str() + key.size(), nullptr, 10) << 10;
  }
  return 0;
}

}  // namespace

std::size_t resident_bytes() {
  return from_status("VmRSS:");
}

std::size_t peak_resident_bytes() {
  return from_status("VmHWM:");
}

}  // namespace atl
