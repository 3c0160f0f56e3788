#include "atoll/island/ledger/ledger.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/island/ledger/checksum.h"
#include "atoll/island/ledger/lock.h"
#include "atoll/island/ledger/tables.h"
#include "atoll/island/protocol/identity.h"

namespace atl::island {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLedger = "ledger";  // in messages

double unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

void check_identity(const fs::path& path, const RunIdentity& found, const RunIdentity& expected) {
  const std::pair<const char*, std::string RunIdentity::*> fields[] = {
      {"run", &RunIdentity::run},     {"version", &RunIdentity::version},
      {"model", &RunIdentity::model}, {"tokenizer", &RunIdentity::tokenizer},
      {"data", &RunIdentity::data},   {"settings", &RunIdentity::settings},
  };
  for (const auto& [name, field] : fields) {
    if (found.*field == expected.*field) continue;
    if (field == &RunIdentity::settings) {
      throw user_error(
          "ledger {} is another run's: {}; give another directory, or the settings that it was "
          "begun with",
          path.string(), settings_difference(expected.settings, found.settings));
    }
    throw user_error(
        "ledger {} is another run's: its {} is \"{}\", here it is \"{}\"; give another directory, "
        "or the settings that it was begun with",
        path.string(), name, found.*field, expected.*field);
  }
}

void remove_leftover(const fs::path& path) {
  std::error_code failure;
  fs::remove(path, failure);
  if (failure) throw io_error("cannot remove", path, failure.value());
}

// Under another name first, so that a ledger is there with its tables or not at all, and an empty
// file is never taken for a new one.
void make_ledger(const fs::path& path, const RunIdentity& identity) {
  const fs::path made = path.string() + ".new";
  remove_leftover(made);
  remove_leftover(made.string() + "-journal");
  remove_leftover(path.string() + "-journal");
  {
    Database database(made, Database::Open::kOrMake, kLedger);
    database.prepare_for_writing();
    Transaction transaction(database, Transaction::Kind::kWrite);
    make_tables(database, identity);
    transaction.commit();
  }
  remove_leftover(made.string() + "-journal");
  std::error_code failure;
  fs::rename(made, path, failure);
  if (failure) throw io_error("cannot put in place", path, failure.value());
  sync_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

}  // namespace

struct Ledger::State {
  State(const fs::path& path, const RunIdentity& run) : identity(run), lock(path) {
    if (!path_exists(path)) make_ledger(path, identity);
    database.emplace(path, Database::Open::kExisting, kLedger);
    database->prepare_for_writing();
    Transaction transaction(*database, Transaction::Kind::kWrite);
    check_tables(*database);
    const RunIdentity found = read_identity(*database);
    end = read_records(*database, found, [](LogRecord&&) {});
    check_identity(path, found, identity);
    const LedgerEnd next =
        insert_record(*database, end, {unix_seconds(), LogStarted{.fence = end.fence + 1}});
    transaction.commit();
    end = next;
  }

  RunIdentity identity;
  LedgerLock lock;
  std::optional<Database> database;
  LedgerEnd end;
};

Ledger::Ledger(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ledger::~Ledger() = default;
Ledger::Ledger(Ledger&&) noexcept = default;
Ledger& Ledger::operator=(Ledger&&) noexcept = default;

Ledger Ledger::open(const fs::path& path, const RunIdentity& identity) {
  return Ledger(std::make_unique<State>(path, identity));
}

std::uint64_t Ledger::fence() const {
  return state_->end.fence;
}

void Ledger::append(const LogBody& body) {
  append(std::span(&body, 1));
}

void Ledger::append(std::span<const LogBody> bodies) {
  if (bodies.empty()) return;
  Database& database = *state_->database;
  Transaction transaction(database, Transaction::Kind::kWrite);
  const std::int64_t fence = database.number("SELECT max(fence) FROM starts");
  if (fence != static_cast<std::int64_t>(state_->end.fence)) {
    throw make_error(ErrorKind::kPeer,
                     "ledger {} was taken by another coordinator with fence {}, this one has {}; "
                     "stop one of them, and keep the ledger on a disk that has locks",
                     database.path().string(), fence, state_->end.fence);
  }
  LedgerEnd end = state_->end;
  const double now = unix_seconds();
  for (const LogBody& body : bodies) end = insert_record(database, end, {now, body});
  transaction.commit();
  state_->end = end;
}

std::vector<LogRecord> Ledger::read() const {
  std::vector<LogRecord> records;
  Transaction transaction(*state_->database, Transaction::Kind::kRead);
  read_records(*state_->database, state_->identity,
               [&](LogRecord&& record) { records.push_back(std::move(record)); });
  return records;
}

LedgerContent read_ledger(const fs::path& path) {
  if (!path_exists(path)) throw user_error("there is no ledger {}", path.string());
  Database database(path, Database::Open::kExisting, kLedger);
  Transaction transaction(database, Transaction::Kind::kRead);
  check_tables(database);
  LedgerContent content = {.identity = read_identity(database)};
  read_records(database, content.identity,
               [&](LogRecord&& record) { content.records.push_back(std::move(record)); });
  return content;
}

}  // namespace atl::island
