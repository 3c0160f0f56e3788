#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// The ledger's name in a coordinator's directory.
inline constexpr const char* kLedgerFile = "ledger.db";

/// The log of a run's coordinator: an SQLite file of readable tables (docs/ledger.md). The
/// process that opens it excludes every other coordinator until destruction, with a fence higher
/// than all before. For one thread at a time; not to be kept across fork().
class Ledger {
 public:
  /// Opens the ledger, or makes it in an existing directory, checks every byte of it, and appends
  /// LogStarted with the new fence. Throws Error: kUser when another coordinator that is alive
  /// holds it (naming its process and host), when it is another run's (naming the field) or no
  /// ledger; kDamaged when it is not what was written; kIo when the disk fails.
  static Ledger open(const std::filesystem::path& path, const RunIdentity& identity);
  ~Ledger();
  Ledger(Ledger&&) noexcept;
  Ledger& operator=(Ledger&&) noexcept;

  /// The one this coordinator's messages carry.
  std::uint64_t fence() const;

  /// Appends a record; it survives a loss of power once this returns. Numbers must be finite and
  /// fences below 2^63. Throws Error(kIo) naming the file when the disk is full or fails, and then
  /// has appended nothing: it may be tried again; Error(kPeer) when another coordinator took the
  /// ledger in spite of the lock (a network disk without locks).
  void append(const LogBody& body);
  /// Appends several, all or none, for the price of one.
  void append(std::span<const LogBody> bodies);

  /// The whole log in order, the LogStarted of this opening last or before what was appended since.
  std::vector<LogRecord> read() const;

 private:
  struct State;
  explicit Ledger(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// What a ledger holds.
struct LedgerContent {
  RunIdentity identity;
  std::vector<LogRecord> records;
};

/// Reads a ledger without taking it: its coordinator may be writing to it. Checks and throws as
/// Ledger::open does, and Error(kUser) when there is none.
LedgerContent read_ledger(const std::filesystem::path& path);

}  // namespace atl::island
