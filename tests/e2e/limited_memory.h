#pragma once

// A limit of memory for processes that a test starts.

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "atoll/base/error.h"

namespace atl::e2e {

/// A cgroup with a limit of memory, as a container has one; removed with the object. It holds
/// nobody where none can be made.
class LimitedMemory {
 public:
  explicit LimitedMemory(std::int64_t bytes) {
    for (const char* parent : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      for (const char* limit : {"memory.limit_in_bytes", "memory.max"}) {
        const std::filesystem::path path =
            std::filesystem::path(parent) / fmt::format("atoll-test-{}", ::getpid());
        std::error_code error;
        std::filesystem::create_directory(path, error);
        if (!error && std::filesystem::exists(path / limit) &&
            put(path / limit, std::to_string(bytes))) {
          path_ = path;
          return;
        }
        std::filesystem::remove(path, error);
      }
    }
  }
  ~LimitedMemory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove(path_, ignored);
  }
  bool holds(pid_t pid) const {
    return !path_.empty() && put(path_ / "cgroup.procs", std::to_string(pid));
  }

 private:
  static bool put(const std::filesystem::path& file, const std::string& text) {
    std::ofstream stream(file);
    stream << text << std::flush;
    return stream.good();
  }
  std::filesystem::path path_;
};

}  // namespace atl::e2e
