// What is left of a ledger when its coordinator is killed, or its machine loses power.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "atoll/base/files/file.h"
#include "atoll/island/ledger/testing.h"

namespace atl::island {
namespace {

namespace fs = std::filesystem;

using testing::LedgerDirectory;
using testing::numbered_body;
using testing::run_identity;

// Records other than starts must be numbered_body(0), (1), ...; says how many there are.
std::int64_t count_in_order(const std::vector<LogRecord>& records) {
  std::int64_t count = 0;
  for (const LogRecord& record : records) {
    if (std::holds_alternative<LogStarted>(record.body)) continue;
    EXPECT_EQ(record.body, numbered_body(count)) << "record " << count;
    ++count;
  }
  return count;
}

// --- Killed

// A child that appends from `first` on until it is killed, and says each number that is in.
pid_t start_appender(const fs::path& path, std::int64_t first, int pipe_end) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    Ledger ledger = Ledger::open(path, run_identity());
    for (std::int64_t i = first;; ++i) {
      ledger.append(numbered_body(i));
      if (::write(pipe_end, &i, sizeof(i)) != sizeof(i)) ::_exit(1);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    ::_exit(2);
  }
}

TEST(LedgerCrash, AKillLosesNothingThatWasAcknowledged) {
  std::mt19937 random(11);
  std::int64_t kept = 0;
  std::int64_t most = 0;
  auto directory = std::make_unique<LedgerDirectory>();
  for (int kill = 0; kill < 200; ++kill) {
    if (kill % 25 == 0) {  // opening reads all of it
      directory = std::make_unique<LedgerDirectory>();
      kept = 0;
    }
    std::array<int, 2> pipe_ends = {};
    ASSERT_EQ(::pipe(pipe_ends.data()), 0);
    const pid_t child = start_appender(directory->ledger(), kept, pipe_ends[1]);
    ::close(pipe_ends[1]);
    // Somewhere in the opening, or in one of the first appends, also where a machine is slow.
    std::int64_t acknowledged = kept;
    const auto read_one = [&] {
      std::int64_t number = 0;
      if (::read(pipe_ends[0], &number, sizeof(number)) != sizeof(number)) return false;
      acknowledged = number + 1;
      return true;
    };
    const auto wanted = kill % 2 == 0 ? 0 : static_cast<std::int64_t>(random() % 6);
    while (acknowledged < kept + wanted && read_one()) continue;
    ::usleep(random() % (wanted > 0 ? 500 : 4000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
    while (read_one()) continue;
    ::close(pipe_ends[0]);
    const Ledger ledger = Ledger::open(directory->ledger(), run_identity());
    most = std::max(most, acknowledged - kept);
    kept = count_in_order(ledger.read());
    EXPECT_GE(kept, acknowledged) << "kill " << kill;
    EXPECT_LE(kept, acknowledged + 1) << "kill " << kill;
    if (HasFailure()) return;
  }
  EXPECT_GE(most, 5);  // otherwise the kills come before there is anything to lose
}

// --- Without power

// What SQLite asked of the disk, in order.
struct Operation {
  enum class Kind { kWrite, kTruncate, kSync, kAcknowledged };
  Kind kind;
  std::string file;
  std::int64_t offset = 0;  // the new size, of kTruncate; records appended, of kAcknowledged
  std::string data;
};
std::vector<Operation> operations;

// A file whose writes are noted on their way to the real one, which follows in memory.
struct RecordedFile {
  sqlite3_file base;
  const char* name;
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};
RecordedFile& noted(sqlite3_file* file) {
  return *reinterpret_cast<RecordedFile*>(file);
}
sqlite3_file* real(sqlite3_file* file) {
  return noted(file).real();
}
void note(Operation::Kind kind, sqlite3_file* file, std::int64_t offset, std::string data = "") {
  operations.push_back({kind, noted(file).name, offset, std::move(data)});
}

const sqlite3_io_methods kNotedMethods = {
    .iVersion = 1,
    .xClose = [](sqlite3_file* f) { return real(f)->pMethods->xClose(real(f)); },
    .xRead = [](sqlite3_file* f, void* data, int size,
                sqlite3_int64 at) { return real(f)->pMethods->xRead(real(f), data, size, at); },
    .xWrite =
        [](sqlite3_file* f, const void* data, int size, sqlite3_int64 at) {
          note(Operation::Kind::kWrite, f, at,
               std::string(static_cast<const char*>(data), static_cast<std::size_t>(size)));
          return real(f)->pMethods->xWrite(real(f), data, size, at);
        },
    .xTruncate =
        [](sqlite3_file* f, sqlite3_int64 size) {
          note(Operation::Kind::kTruncate, f, size);
          return real(f)->pMethods->xTruncate(real(f), size);
        },
    .xSync =
        [](sqlite3_file* f, int flags) {
          note(Operation::Kind::kSync, f, 0);
          return real(f)->pMethods->xSync(real(f), flags);
        },
    .xFileSize = [](sqlite3_file* f,
                    sqlite3_int64* size) { return real(f)->pMethods->xFileSize(real(f), size); },
    .xLock = [](sqlite3_file* f, int lock) { return real(f)->pMethods->xLock(real(f), lock); },
    .xUnlock = [](sqlite3_file* f, int lock) { return real(f)->pMethods->xUnlock(real(f), lock); },
    .xCheckReservedLock =
        [](sqlite3_file* f, int* out) {
          return real(f)->pMethods->xCheckReservedLock(real(f), out);
        },
    .xFileControl = [](sqlite3_file* f, int what,
                       void* arg) { return real(f)->pMethods->xFileControl(real(f), what, arg); },
    .xSectorSize = [](sqlite3_file* f) { return real(f)->pMethods->xSectorSize(real(f)); },
    .xDeviceCharacteristics =
        [](sqlite3_file* f) { return real(f)->pMethods->xDeviceCharacteristics(real(f)); },
};

// The system's files with notes, as the default of this process for as long as it lives.
class RecordedDisk {
 public:
  RecordedDisk() : vfs_(*sqlite3_vfs_find(nullptr)) {
    system_ = sqlite3_vfs_find(nullptr);
    vfs_.zName = "noted";
    vfs_.szOsFile += static_cast<int>(sizeof(RecordedFile));
    vfs_.xOpen = [](sqlite3_vfs*, sqlite3_filename name, sqlite3_file* file, int flags, int* out) {
      noted(file).name = name;
      const int code = system_->xOpen(system_, name, real(file), flags, out);
      file->pMethods = real(file)->pMethods == nullptr ? nullptr : &kNotedMethods;
      return code;
    };
    operations.clear();
    sqlite3_vfs_register(&vfs_, 1);
  }
  ~RecordedDisk() {
    sqlite3_vfs_unregister(&vfs_);
    sqlite3_vfs_register(system_, 1);
  }
  RecordedDisk(const RecordedDisk&) = delete;
  RecordedDisk& operator=(const RecordedDisk&) = delete;

 private:
  static inline sqlite3_vfs* system_ = nullptr;
  sqlite3_vfs vfs_;
};

using Files = std::map<std::string, std::string>;

void apply(const Operation& operation, std::string& content, std::mt19937* tears) {
  const auto offset = static_cast<std::size_t>(operation.offset);
  if (operation.kind == Operation::Kind::kTruncate) content.resize(offset);
  if (operation.kind != Operation::Kind::kWrite) return;
  content.resize(std::max(content.size(), offset + operation.data.size()));
  constexpr std::size_t kSector = 512;
  for (std::size_t at = 0; at < operation.data.size(); at += kSector) {
    if (tears != nullptr && (*tears)() % 4 == 0) continue;
    content.replace(offset + at, std::min(kSector, operation.data.size() - at),
                    operation.data.substr(at, kSector));
  }
}

// The disk after the first `count` operations and no more power: what a file's last sync has not
// seen is there, not there, or there in part.
Files crash(const Files& before, std::size_t count, std::mt19937& random) {
  std::map<std::string, std::size_t> synced;
  for (std::size_t i = 0; i < count; ++i) {
    if (operations[i].kind == Operation::Kind::kSync) synced[operations[i].file] = i;
  }
  Files files = before;
  for (std::size_t i = 0; i < count; ++i) {
    const Operation& operation = operations[i];
    if (operation.kind == Operation::Kind::kAcknowledged) continue;
    std::string& content = files[operation.file];
    const auto last_sync = synced.find(operation.file);
    if (last_sync != synced.end() && i < last_sync->second) {
      apply(operation, content, nullptr);
    } else {
      const auto luck = random() % 3;
      if (luck > 0) apply(operation, content, luck == 1 ? nullptr : &random);
    }
  }
  return files;
}

TEST(LedgerCrash, WithoutPowerItIsTheOldOrTheNewState) {
  const LedgerDirectory directory;
  { Ledger::open(directory.ledger(), run_identity()); }
  const Files before = {{directory.ledger().string(), read_file(directory.ledger())}};
  constexpr std::int64_t kAppends = 24;
  {
    const RecordedDisk disk;
    Ledger ledger = Ledger::open(directory.ledger(), run_identity());
    for (std::int64_t i = 0; i < kAppends;) {
      const std::vector<LogBody> bodies = {numbered_body(i), numbered_body(i + 1)};
      ledger.append(bodies);
      i += std::ssize(bodies);
      operations.push_back({Operation::Kind::kAcknowledged, "", i, ""});
    }
  }
  std::mt19937 random(5);
  std::set<std::int64_t> seen;
  constexpr int kStates = 400;
  for (int state = 0; state < kStates; ++state) {
    const std::size_t count = random() % (operations.size() + 1);
    std::int64_t acknowledged = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (operations[i].kind == Operation::Kind::kAcknowledged) acknowledged = operations[i].offset;
    }
    const LedgerDirectory after;
    for (const auto& [name, content] : crash(before, count, random)) {
      std::ofstream(after.path() / fs::path(name).filename(), std::ios::binary) << content;
    }
    const std::int64_t kept = count_in_order(read_ledger(after.ledger()).records);
    EXPECT_TRUE(kept == acknowledged || kept == acknowledged + 2)
        << kept << " of " << acknowledged << " after " << count << " operations, state " << state;
    seen.insert(kept);
    if (HasFailure()) return;
  }
  EXPECT_EQ(std::ssize(seen), kAppends / 2 + 1);
}

}  // namespace
}  // namespace atl::island
