#pragma once

// SQLite files of decisions: the ledger of islands, the store of a study (decision 0033).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <variant>

struct sqlite3;
struct sqlite3_stmt;

namespace atl {

/// What is bound to a `?` of a statement.
using SqlValue = std::variant<std::int64_t, double, std::string>;

/// What to do about a damaged file; ends the messages of errors.
inline constexpr const char* kDamageRemedy =
    "restore the file from a copy; `sqlite3 FILE .recover` shows what of it can still be read";

/// One row of a result, valid in the call that it was given to. Throws Error(kDamaged) when a
/// column is not of the type or range asked for.
class SqlRow {
 public:
  /// `name`: of the file, for messages.
  SqlRow(sqlite3_stmt* statement, const std::string& name) : statement_(statement), name_(name) {}

  std::int64_t integer(int column) const;
  /// An integer from 0 to `max`.
  std::uint64_t natural(int column, std::uint64_t max) const;
  double real(int column) const;
  std::string text(int column) const;

 private:
  [[noreturn]] void refuse(int column, const char* expected) const;

  sqlite3_stmt* statement_;
  const std::string& name_;
};

/// An SQLite file whose every failure is an Error that names it: kIo when the disk is full or
/// fails, kDamaged when the file is not whole, kUser when it may not be opened.
class Database {
 public:
  /// Whether a file is made where there is none.
  enum class Open { kExisting, kOrMake };
  /// `kind` says in messages what the file is: "ledger".
  Database(const std::filesystem::path& path, Open open, const char* kind);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Keeps all that is committed through a kill and a loss of power: a rollback journal and full
  /// synchronisation, for whoever writes.
  void prepare_for_writing();
  /// Statements without results, separated by semicolons.
  void execute(const std::string& sql);
  /// One statement, kept ready for the next time; `sql` must be a literal.
  void run(const char* sql, std::initializer_list<SqlValue> values);
  /// The same; gives each row of the result to `use`.
  void query(const char* sql, std::initializer_list<SqlValue> values,
             const std::function<void(const SqlRow&)>& use);
  /// The number in the first column of the first row; 0 when there is none.
  std::int64_t number(const char* sql);

 private:
  friend class Transaction;
  [[noreturn]] void fail(int code, const char* what);
  sqlite3_stmt* prepare(const char* sql, std::initializer_list<SqlValue> values);

  std::filesystem::path path_;
  const char* kind_;
  std::string name_;  // "ledger runs/x/ledger.sqlite"
  sqlite3* handle_ = nullptr;
  std::map<const char*, sqlite3_stmt*> statements_;
};

/// All or nothing: what is written while it lives is undone unless commit() returns.
class Transaction {
 public:
  /// Of a writer, which keeps other writers out, or of a reader, who sees one state of the file.
  enum class Kind { kRead, kWrite };
  Transaction(Database& database, Kind kind);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace atl
