#include "atoll/base/files/database.h"

#include <sqlite3.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/files/size_limit.h"

namespace atl {

namespace fs = std::filesystem;

namespace {

// A person with sqlite3 open, or a command that shows the file, is waited for so long.
constexpr int kBusyMs = 5000;

// What no record of ours comes near; a damaged file must not ask for more.
constexpr int kMaxValueBytes = 16 << 20;

}  // namespace

// --- Rows

void SqlRow::refuse(int column, const char* expected) const {
  throw damaged_error("{} is damaged: {} is not {}; {}", name_,
                      sqlite3_column_name(statement_, column), expected, kDamageRemedy);
}

std::int64_t SqlRow::integer(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER) refuse(column, "an integer");
  return sqlite3_column_int64(statement_, column);
}

std::uint64_t SqlRow::natural(int column, std::uint64_t max) const {
  const std::int64_t value = integer(column);
  if (value < 0 || static_cast<std::uint64_t>(value) > max) refuse(column, "in its range");
  return static_cast<std::uint64_t>(value);
}

double SqlRow::real(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_FLOAT) refuse(column, "a number");
  return sqlite3_column_double(statement_, column);
}

std::string SqlRow::text(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) refuse(column, "a text");
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  const int size = sqlite3_column_bytes(statement_, column);
  if (data == nullptr) refuse(column, "readable");
  return {data, static_cast<std::size_t>(size)};
}

// --- Database

Database::Database(const fs::path& path, Open open, const char* kind)
    : path_(path), kind_(kind), name_(fmt::format("{} {}", kind, path.string())) {
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                    (open == Open::kOrMake ? SQLITE_OPEN_CREATE : 0);
  const int code = sqlite3_open_v2(path.c_str(), &handle_, flags, nullptr);
  try {
    if (code != SQLITE_OK) fail(code, "open");
    sqlite3_busy_timeout(handle_, kBusyMs);
    sqlite3_limit(handle_, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
    sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    execute("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY");
  } catch (...) {
    sqlite3_close(handle_);
    throw;
  }
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

void Database::fail(int code, const char* what) {
  const int system = handle_ == nullptr ? 0 : sqlite3_system_errno(handle_);
  if (system == EFBIG) {
    throw make_error(ErrorKind::kIo, "cannot {} {}: {}{}", what, name_, std::strerror(system),
                     size_limit_advice());
  }
  const std::string reason = std::string(sqlite3_errstr(code)) +
                             (system != 0 ? fmt::format(" ({})", std::strerror(system)) : "");
  switch (code & 0xFF) {
    case SQLITE_FULL:
      throw make_error(ErrorKind::kIo,
                       "cannot {} {}: the disk is full; free some space, nothing of it is "
                       "lost",
                       what, name_);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      throw damaged_error("{} is damaged: {}; {}", name_, sqlite3_errmsg(handle_), kDamageRemedy);
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
      throw damaged_error("{} has not the tables of a {}: {}; {}", name_, kind_,
                          sqlite3_errmsg(handle_), kDamageRemedy);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw make_error(ErrorKind::kIo,
                       "cannot {} {}: another program has kept it locked for {} seconds; "
                       "close it",
                       what, name_, kBusyMs / 1000);
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      throw user_error("cannot {} {}: {}; give a directory you may write to", what, name_, reason);
    default:
      throw make_error(ErrorKind::kIo, "cannot {} {}: {}; check the disk", what, name_, reason);
  }
}

// A rollback journal, not a write-ahead log: a bit that flips in a write-ahead log looks like its
// end, and SQLite would drop what stands behind it without a word. Here all that was appended is in
// the file itself, under its records' checksums. FULL syncs journal, file, and the truncation of
// the journal, which is what makes a commit durable in this mode. It costs some more syncs each;
// there are few appends.
void Database::prepare_for_writing() {
  execute("PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
}

void Database::execute(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code, "use");
}

sqlite3_stmt* Database::prepare(const char* sql, std::initializer_list<SqlValue> values) {
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr) {
    const int code =
        sqlite3_prepare_v3(handle_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) fail(code, "read");
  }
  int index = 0;
  for (const SqlValue& value : values) {
    ++index;
    int code = SQLITE_OK;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      code = sqlite3_bind_int64(statement, index, *integer);
    } else if (const auto* real = std::get_if<double>(&value)) {
      code = sqlite3_bind_double(statement, index, *real);
    } else {
      const std::string& text = std::get<std::string>(value);
      code = sqlite3_bind_text64(statement, index, text.data(), text.size(), SQLITE_TRANSIENT,
                                 SQLITE_UTF8);
    }
    ATOLL_CHECK(code == SQLITE_OK, "value {} of `{}`: {}", index, sql, sqlite3_errstr(code));
  }
  return statement;
}

void Database::query(const char* sql, std::initializer_list<SqlValue> values,
                     const std::function<void(const SqlRow&)>& use) {
  sqlite3_stmt* statement = prepare(sql, values);
  struct Reset {
    sqlite3_stmt* statement;
    ~Reset() { sqlite3_reset(statement); }
  } const reset{statement};
  for (;;) {
    const int code = sqlite3_step(statement);
    if (code == SQLITE_DONE) return;
    if (code != SQLITE_ROW) {
      fail(code, sqlite3_stmt_readonly(statement) != 0 ? "read" : "append to");
    }
    use(SqlRow(statement, name_));
  }
}

void Database::run(const char* sql, std::initializer_list<SqlValue> values) {
  query(sql, values, [](const SqlRow&) {});
}

std::int64_t Database::number(const char* sql) {
  std::int64_t number = 0;
  query(sql, {}, [&](const SqlRow& row) { number = row.integer(0); });
  return number;
}

// --- Transaction

Transaction::Transaction(Database& database, Kind kind) : database_(database) {
  database_.run(kind == Kind::kWrite ? "BEGIN IMMEDIATE" : "BEGIN", {});
}

Transaction::~Transaction() {
  // A failed statement may have ended it already; where the disk refuses even this, the journal
  // that stays behind undoes it when the file is opened next.
  if (open_ && sqlite3_get_autocommit(database_.handle_) == 0) {
    sqlite3_exec(database_.handle_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

void Transaction::commit() {
  database_.run("COMMIT", {});
  open_ = false;
}

}  // namespace atl
