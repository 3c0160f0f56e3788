#include "atoll/island/ledger/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <ctime>
#include <fstream>
#include <random>

#include "atoll/base/files/file.h"
#include "atoll/island/ledger/testing.h"
#include "atoll/island/protocol/messages_generators.h"

namespace atl::island {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using testing::bodies_of;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::LedgerDirectory;
using testing::numbered_body;
using testing::run_identity;
using ::testing::StartsWith;

// As a person with the sqlite3 program would.
void run_sql(const fs::path& path, const std::string& sql) {
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &handle), SQLITE_OK);
  char* message = nullptr;
  EXPECT_EQ(sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK)
      << sql << ": " << message;
  sqlite3_close(handle);
}

// The rows of a result, columns apart by "|".
std::vector<std::string> query_sql(const fs::path& path, const std::string& sql) {
  sqlite3* handle = nullptr;
  std::vector<std::string> rows;
  const auto take = [](void* out, int count, char** values, char**) {
    std::string row;
    for (int i = 0; i < count; ++i) {
      row += (i > 0 ? "|" : "") + std::string(values[i] == nullptr ? "NULL" : values[i]);
    }
    static_cast<std::vector<std::string>*>(out)->push_back(row);
    return 0;
  };
  EXPECT_EQ(sqlite3_open(path.c_str(), &handle), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(handle, sql.c_str(), take, &rows, nullptr), SQLITE_OK) << sql;
  sqlite3_close(handle);
  return rows;
}

// A ledger of one start and these numbers of records.
std::vector<LogBody> fill(const fs::path& path, int count) {
  Ledger ledger = Ledger::open(path, run_identity());
  for (int i = 0; i < count; ++i) ledger.append(numbered_body(i));
  return bodies_of(ledger.read());
}

RC_GTEST_PROP(LedgerProperty, ReplaysEveryKindAsItWasWritten, ()) {
  const LedgerDirectory directory;
  std::vector<LogBody> written;
  for (std::uint64_t fence = 1; fence <= 2; ++fence) {
    Ledger ledger = Ledger::open(directory.ledger(), run_identity());
    written.push_back(LogStarted{fence});
    for (int i = *rc::gen::inRange(0, 3); i > 0; --i) {
      const std::vector<LogBody> bodies = testing::any_list(testing::any_log_body);
      ledger.append(bodies);
      written.insert(written.end(), bodies.begin(), bodies.end());
    }
    RC_ASSERT(bodies_of(ledger.read()) == written);
  }
  const LedgerContent content = read_ledger(directory.ledger());
  RC_ASSERT(bodies_of(content.records) == written);
  RC_ASSERT(content.identity == run_identity());
}

TEST(Ledger, EachOpeningHasAHigherFence) {
  const LedgerDirectory directory;
  for (std::uint64_t fence = 1; fence < 5; ++fence) {
    const Ledger ledger = Ledger::open(directory.ledger(), run_identity());
    EXPECT_EQ(ledger.fence(), fence);
    EXPECT_EQ(std::get<LogStarted>(ledger.read().back().body).fence, fence);
  }
}

TEST(Ledger, RecordsHaveTheTimeOfTheirAppending) {
  const LedgerDirectory directory;
  const auto before = static_cast<double>(std::time(nullptr));
  fill(directory.ledger(), 2);
  for (const LogRecord& record : read_ledger(directory.ledger()).records) {
    EXPECT_GE(record.unix_seconds, before);
    EXPECT_LE(record.unix_seconds, before + 60);
  }
}

TEST(Ledger, ASecondCoordinatorIsToldWhoHasIt) {
  const LedgerDirectory directory;
  {
    Ledger first = Ledger::open(directory.ledger(), run_identity());
    EXPECT_THAT(error_of([&] { Ledger::open(directory.ledger(), run_identity()); }),
                AllOf(StartsWith("user: "), HasSubstr(fmt::format("process {} on ", ::getpid()))));
    first.append(LogFinished{});
    EXPECT_EQ(read_ledger(directory.ledger()).records.size(), 2U);
  }
  EXPECT_EQ(Ledger::open(directory.ledger(), run_identity()).fence(), 2U);
}

// A disk without locks lets a second one in; the first must not go on.
TEST(Ledger, AnAppendUnderAnOldFenceIsRefused) {
  const LedgerDirectory directory;
  Ledger ledger = Ledger::open(directory.ledger(), run_identity());
  run_sql(directory.ledger(), "INSERT INTO starts VALUES (1000, 7)");
  EXPECT_THAT(error_of([&] { ledger.append(LogFinished{}); }),
              AllOf(StartsWith("peer: "), HasSubstr("fence 7"), HasSubstr("this one has 1")));
}

TEST(Ledger, AnotherRunsLedgerIsRefusedByField) {
  const LedgerDirectory directory;
  fill(directory.ledger(), 3);
  const std::pair<const char*, std::string RunIdentity::*> fields[] = {
      {"run", &RunIdentity::run},     {"version", &RunIdentity::version},
      {"model", &RunIdentity::model}, {"tokenizer", &RunIdentity::tokenizer},
      {"data", &RunIdentity::data},
  };
  for (const auto& [name, field] : fields) {
    RunIdentity other = run_identity();
    other.*field = "other";
    EXPECT_THAT(error_of([&] { Ledger::open(directory.ledger(), other); }),
                AllOf(StartsWith("user: "), HasSubstr(fmt::format("its {} is \"", name)),
                      HasSubstr("here it is \"other\"")));
  }
  RunIdentity other = run_identity();
  other.settings = "outer.lr = 0.5";
  EXPECT_THAT(error_of([&] { Ledger::open(directory.ledger(), other); }),
              AllOf(StartsWith("user: "), HasSubstr("outer.lr is 0.5 there and ")));
  EXPECT_EQ(Ledger::open(directory.ledger(), run_identity()).fence(), 2U);
}

TEST(Ledger, WhatIsNoLedgerIsLeftAlone) {
  const LedgerDirectory directory;
  const auto open = [&] { return error_of([&] { Ledger::open(directory.ledger(), {}); }); };
  const auto read = [&] { return error_of([&] { read_ledger(directory.ledger()); }); };
  EXPECT_THAT(read(), StartsWith("user: there is no ledger"));
  EXPECT_THAT(error_of([&] { Ledger::open(directory.path() / "no" / "x.db", {}); }),
              AllOf(StartsWith("user: "), HasSubstr("directory does not exist")));

  write_file(directory.ledger(), "");
  EXPECT_THAT(open(), AllOf(StartsWith("damaged: "), HasSubstr("it is empty")));
  write_file(directory.ledger(), std::string(5000, 'x'));
  EXPECT_THAT(open(), AllOf(StartsWith("damaged: "), HasSubstr(directory.ledger().string())));
  EXPECT_EQ(read_file(directory.ledger()), std::string(5000, 'x'));

  fs::remove(directory.ledger());
  run_sql(directory.ledger(), "CREATE TABLE mine (x)");
  EXPECT_THAT(open(), AllOf(StartsWith("user: "), HasSubstr("no ledger of atoll")));
  fs::remove(directory.ledger());
  fill(directory.ledger(), 1);
  run_sql(directory.ledger(), "PRAGMA user_version = 4");
  EXPECT_THAT(read(), AllOf(StartsWith("user: "), HasSubstr("of version 4")));
}

TEST(Ledger, WhatCannotBeStoredIsABug) {
  const LedgerDirectory directory;
  Ledger ledger = Ledger::open(directory.ledger(), run_identity());
  const LogReduce nan = {.contributions = {{.participant = {.island = 1}, .norm = NAN}}};
  EXPECT_THAT(error_of([&] { ledger.append(nan); }), StartsWith("internal: "));
  ledger.append(LogFinished{});
  EXPECT_EQ(ledger.read().size(), 2U);
}

TEST(Ledger, ItsViewsTellWhatStands) {
  const LedgerDirectory directory;
  const auto by = [](IslandId island, std::vector<BatchRange> consumed) {
    return LogContribution{{island, "", .5, 10}, std::move(consumed), 3, 1};
  };
  const std::vector<LogBody> bodies = {
      LogIsland{1, "lyon", "a:1"},
      LogIsland{2, "oslo", ""},
      LogIsland{1, "lyon", "b:2"},
      LogReduce{0, 1, 0, {by(1, {{0, 5}}), by(2, {{5, 9}})}},
      LogReduce{0, 2, 0, {by(1, {{0, 5}, {9, 10}})}},
      LogCommit{0, 2, {1, 2}},
      LogReduce{1, 1, 0, {by(2, {{5, 9}})}},
      LogCommit{1, 1, {3, 4}},
      LogVoid{1, "lost"},
      LogReduce{1, 1, 0, {by(2, {{6, 9}})}},
      LogCommit{1, 1, {5, 6}},
  };
  Ledger::open(directory.ledger(), run_identity()).append(bodies);
  const auto rows = [&](const char* sql) { return query_sql(directory.ledger(), sql); };
  EXPECT_THAT(rows("SELECT island, name, address FROM members ORDER BY island"),
              ElementsAre("1|lyon|b:2", "2|oslo|"));
  EXPECT_THAT(rows("SELECT outer_step, attempt, hash, reduce FROM committed ORDER BY outer_step"),
              ElementsAre("0|2|00000000000000010000000000000002|6",
                          "1|1|00000000000000050000000000000006|11"));
  EXPECT_THAT(rows("SELECT outer_step, name, first_batch, end_batch FROM trained ORDER BY 1, 3"),
              ElementsAre("0|lyon|0|5", "0|lyon|9|10", "1|oslo|6|9"));
}

// --- Damage

TEST(Ledger, EveryRowThatIsChangedOrGoneIsFound) {
  const LedgerDirectory directory;
  fill(directory.ledger(), 12);
  const std::string whole = read_file(directory.ledger());
  const char* changes[] = {
      "UPDATE run SET settings = 'x'",
      "DELETE FROM run",
      "UPDATE records SET unix_seconds = unix_seconds + 1 WHERE record = 3",
      "UPDATE records SET kind = 'return' WHERE kind = 'lease'",
      "UPDATE records SET kind = 'else' WHERE record = 4",
      "UPDATE records SET record = record + 100 WHERE record > 5",
      "UPDATE records SET checksum = 'x' WHERE record = 4",
      "DELETE FROM records WHERE record = 5",
      "UPDATE starts SET fence = 9",
      "UPDATE leases SET island = -1",
      "UPDATE leases SET island = 2 WHERE island = 1",
      "DELETE FROM leases",
      "UPDATE ranges SET end_batch = end_batch + 1 WHERE record = 2",
      "UPDATE ranges SET item = 7 - item WHERE record = 2",
      "DELETE FROM ranges WHERE item = 1",
      "INSERT INTO ranges SELECT record, part, 9, 1, 2 FROM ranges WHERE part = 0 AND item = 0",
      "UPDATE reduces SET attempt = attempt + 1",
      "UPDATE contributions SET weight = 0.5",
      "UPDATE contributions SET tokens = tokens + 1 WHERE part = 1",
      "DELETE FROM contributions WHERE part = 1",
      "UPDATE commits SET hash = upper(hash)",
      "UPDATE commits SET hash = substr(hash, 2)",
      "UPDATE commits SET outer_step = outer_step + 1",
      "UPDATE voids SET why = why || '.'",
      "DROP TABLE voids",
  };
  for (const char* change : changes) {
    write_file(directory.ledger(), whole);
    run_sql(directory.ledger(), change);
    EXPECT_THAT(error_of([&] { read_ledger(directory.ledger()); }),
                AllOf(StartsWith("damaged: "), HasSubstr("restore the file")))
        << change;
    EXPECT_THAT(error_of([&] { Ledger::open(directory.ledger(), run_identity()); }),
                StartsWith("damaged: "))
        << change;
  }
}

TEST(Ledger, AFlippedBitIsFoundOrChangesNothing) {
  const LedgerDirectory directory;
  const std::vector<LogBody> written = fill(directory.ledger(), 40);
  const std::string whole = read_file(directory.ledger());
  std::mt19937 random(7);
  int found = 0;
  constexpr int kFlips = 1000;
  for (int i = 0; i < kFlips; ++i) {
    std::string flipped = whole;
    const std::size_t byte = random() % whole.size();
    flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << random() % 8));
    std::ofstream(directory.ledger(), std::ios::binary) << flipped;
    LedgerContent content;
    const std::string error = error_of([&] { content = read_ledger(directory.ledger()); });
    if (!error.empty()) {
      ++found;
    } else {
      EXPECT_EQ(bodies_of(content.records), written) << "byte " << byte;
    }
  }
  // Much of such a small file is room that was never written.
  EXPECT_GT(found, kFlips / 20);
}

TEST(Ledger, ACutFileIsFound) {
  const LedgerDirectory directory;
  fill(directory.ledger(), 40);
  const std::string whole = read_file(directory.ledger());
  for (std::size_t size = 0; size < whole.size(); size += 509) {
    std::ofstream(directory.ledger(), std::ios::binary) << whole.substr(0, size);
    EXPECT_THAT(error_of([&] { read_ledger(directory.ledger()); }), StartsWith("damaged: "))
        << size << " of " << whole.size();
  }
}

// --- Disks that fail

// Makes SQLite's own system calls fail: the n-th write on this thread's next ones.
namespace fault {
int countdown = 0;
int error_number = 0;
sqlite3_syscall_ptr real_pwrite = nullptr;

ssize_t failing_pwrite(int fd, const void* data, std::size_t size, off_t offset) {
  if (countdown > 0 && --countdown == 0) {
    errno = error_number;
    return -1;
  }
  return reinterpret_cast<ssize_t (*)(int, const void*, std::size_t, off_t)>(real_pwrite)(
      fd, data, size, offset);
}

class Guard {
 public:
  Guard() : vfs_(sqlite3_vfs_find("unix")) {
    for (const char* name : {"pwrite64", "pwrite"}) {
      const sqlite3_syscall_ptr real = vfs_->xGetSystemCall(vfs_, name);
      if (real == nullptr) continue;
      real_pwrite = real;
      vfs_->xSetSystemCall(vfs_, name, reinterpret_cast<sqlite3_syscall_ptr>(failing_pwrite));
    }
  }
  ~Guard() {
    countdown = 0;
    vfs_->xSetSystemCall(vfs_, nullptr, nullptr);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  sqlite3_vfs* vfs_;
};
}  // namespace fault

class FailingDisk : public ::testing::TestWithParam<int> {};

// Every write of an append fails once: nothing of it is there, and the next append works.
TEST_P(FailingDisk, AnAppendIsThereOrNot) {
  const LedgerDirectory directory;
  const fault::Guard guard;
  fault::error_number = GetParam();
  Ledger ledger = Ledger::open(directory.ledger(), run_identity());
  std::vector<LogBody> written = bodies_of(ledger.read());
  int failures = 0;
  for (int n = 1;; ++n) {
    const std::vector<LogBody> bodies = {numbered_body(4 * n), numbered_body(4 * n + 1)};
    fault::countdown = n;
    const std::string error = error_of([&] { ledger.append(bodies); });
    const bool all_writes_made = std::exchange(fault::countdown, 0) > 0;
    if (error.empty()) {
      written.insert(written.end(), bodies.begin(), bodies.end());
    } else {
      ++failures;
      EXPECT_THAT(error, AllOf(StartsWith("io: "), HasSubstr(directory.ledger().string()),
                               HasSubstr(GetParam() == ENOSPC ? "free some space" : "disk")));
    }
    EXPECT_EQ(bodies_of(ledger.read()), written) << "after write " << n;
    EXPECT_EQ(bodies_of(read_ledger(directory.ledger()).records), written) << "after write " << n;
    if (all_writes_made) break;
  }
  EXPECT_GE(failures, 4);  // journal, its header, and the pages
}

INSTANTIATE_TEST_SUITE_P(Ledger, FailingDisk, ::testing::Values(ENOSPC, EIO));

TEST(Ledger, ACoordinatorDoesNotStartOnAFullDisk) {
  const LedgerDirectory directory;
  const fault::Guard guard;
  fault::error_number = ENOSPC;
  for (int n = 1; n < 4; ++n) {
    fault::countdown = n;
    EXPECT_THAT(error_of([&] { Ledger::open(directory.ledger(), run_identity()); }),
                AllOf(StartsWith("io: "), HasSubstr("the disk is full")));
    EXPECT_FALSE(fs::exists(directory.ledger()));
  }
  fault::countdown = 0;
  EXPECT_EQ(Ledger::open(directory.ledger(), run_identity()).fence(), 1U);
}

}  // namespace
}  // namespace atl::island
