#pragma once

#include <cstdint>

#include "atoll/base/files/database.h"
#include "atoll/base/hash.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// The end of a ledger: what the next record is chained to.
struct LedgerEnd {
  std::int64_t num_records = 0;
  std::uint64_t fence = 0;  ///< the highest of any start
  Hash128 checksum;         ///< of the last record and all before; without any, of the identity
};

/// Makes the tables of an empty database, for this run.
void make_tables(Database& database, const RunIdentity& identity);
/// Throws Error when the file is no ledger (kUser), one of another version (kUser), or one that is
/// empty or whose pages do not hang together (kDamaged).
void check_tables(Database& database);
/// Whose ledger it is.
RunIdentity read_identity(Database& database);

/// Adds the record that comes after `end`, inside the caller's transaction; returns the new end.
/// Throws Error(kInternal) for a number that a ledger cannot hold.
LedgerEnd insert_record(Database& database, const LedgerEnd& end, const LogRecord& record);
/// Gives all records in order to `use` and returns the end. Throws Error(kDamaged) naming the
/// record that is not what was written.
LedgerEnd read_records(Database& database, const RunIdentity& identity,
                       const std::function<void(LogRecord&&)>& use);

}  // namespace atl::island
