#include "atoll/cli/bench/room.h"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"

namespace atl::cli {

namespace fs = std::filesystem;

BenchRoom::BenchRoom(const fs::path& directory)
    : path_(directory / fmt::format("atoll-bench-{}", ::getpid())) {
  if (!directory_exists(directory)) {
    throw user_error("there is no directory {} to write to; make it, or give another",
                     directory.string());
  }
  std::error_code failed;
  if (!fs::create_directory(path_, failed)) {
    throw user_error("cannot make {}: {}; give a directory that can be written to", path_.string(),
                     failed ? failed.message() : "it is there already");
  }
}

BenchRoom::~BenchRoom() {
  std::error_code ignored;  // nobody can do more about it than see the files
  fs::remove_all(path_, ignored);
}

}  // namespace atl::cli
