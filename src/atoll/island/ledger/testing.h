#pragma once

// What the tests of ledgers share.

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/island/ledger/ledger.h"

namespace atl::island::testing {

/// A directory of its own, in memory where the system has one: appends are synced.
class LedgerDirectory {
 public:
  LedgerDirectory() {
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;
    const std::filesystem::path parent =
        in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string pattern = parent / "atoll-ledger-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~LedgerDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  LedgerDirectory(const LedgerDirectory&) = delete;
  LedgerDirectory& operator=(const LedgerDirectory&) = delete;

  std::filesystem::path ledger() const { return path_ / kLedgerFile; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A run.
inline RunIdentity run_identity() {
  return {"kjv", "1", "model-1", "tokenizer-1", "data-1", "settings-1"};
}

/// Records without their times.
inline std::vector<LogBody> bodies_of(const std::vector<LogRecord>& records) {
  std::vector<LogBody> bodies;
  for (const LogRecord& record : records) bodies.push_back(record.body);
  return bodies;
}

/// Records of which each is another, for appending in order.
inline LogBody numbered_body(std::int64_t number) {
  const auto island = static_cast<IslandId>(1 + number % 3);
  switch (number % 4) {
    case 0:
      return LogLease{island, {{number, number + 2}, {number + 5, number + 9}}};
    case 1:
      return LogReduce{number,
                       static_cast<std::uint32_t>(number % 7),
                       1,
                       {{{island, "10.0.0.1:7001", 0.25, 4096}, {{number, number + 1}}, 3.5, 0.1},
                        {{island + 1, "", 0.75, 12288}, {}, 3.25, 0.2}}};
    case 2:
      return LogCommit{number, 1, {static_cast<std::uint64_t>(number) * 977, 5}};
    default:
      return LogVoid{number, "lost with everyone, number " + std::to_string(number)};
  }
}

/// The Error that fn throws, as "<kind> <message>" with the number of its kind; "" when none.
template <typename Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    const char* kinds[] = {"user", "io", "damaged", "resource", "numeric", "peer", "internal"};
    return std::string(kinds[static_cast<int>(error.kind())]) + ": " + error.what();
  }
  return "";
}

}  // namespace atl::island::testing
