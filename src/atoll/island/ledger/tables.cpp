#include "atoll/island/ledger/tables.h"

#include <cmath>
#include <limits>
#include <optional>

#include "atoll/base/check.h"
#include "atoll/island/ledger/checksum.h"

namespace atl::island {

namespace {

constexpr std::int64_t kApplicationId = 0x41544F4C;  // "ATOL"
constexpr std::int64_t kVersion = 3;
constexpr std::uint64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::uint64_t kMaxUint32 = std::numeric_limits<std::uint32_t>::max();

// By index of LogBody.
constexpr const char* kKinds[] = {"start",  "island", "lease",  "return", "reduce",
                                  "commit", "void",   "finish", "policy"};
static_assert(std::size(kKinds) == std::variant_size_v<LogBody>);

constexpr const char* kTables = R"sql(
CREATE TABLE run (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  run TEXT NOT NULL, version TEXT NOT NULL, model TEXT NOT NULL, tokenizer TEXT NOT NULL,
  data TEXT NOT NULL, settings TEXT NOT NULL) STRICT;
CREATE TABLE records (
  record INTEGER PRIMARY KEY, unix_seconds REAL NOT NULL, kind TEXT NOT NULL,
  checksum TEXT NOT NULL) STRICT;
CREATE TABLE starts (
  record INTEGER PRIMARY KEY REFERENCES records, fence INTEGER NOT NULL UNIQUE) STRICT;
CREATE TABLE islands (
  record INTEGER PRIMARY KEY REFERENCES records, island INTEGER NOT NULL, name TEXT NOT NULL,
  address TEXT NOT NULL) STRICT;
CREATE TABLE leases (
  record INTEGER PRIMARY KEY REFERENCES records, island INTEGER NOT NULL) STRICT;
CREATE TABLE returns (
  record INTEGER PRIMARY KEY REFERENCES records, island INTEGER NOT NULL) STRICT;
CREATE TABLE reduces (
  record INTEGER PRIMARY KEY REFERENCES records, outer_step INTEGER NOT NULL,
  attempt INTEGER NOT NULL, fragment INTEGER NOT NULL) STRICT;
CREATE TABLE contributions (
  record INTEGER NOT NULL REFERENCES reduces, part INTEGER NOT NULL, island INTEGER NOT NULL,
  address TEXT NOT NULL, weight REAL NOT NULL, tokens INTEGER NOT NULL, loss REAL NOT NULL,
  norm REAL NOT NULL, step_seconds REAL NOT NULL, learning_rate REAL NOT NULL,
  exchange_seconds REAL NOT NULL, codec_bytes_per_second REAL NOT NULL, mean_norm REAL NOT NULL,
  exchange INTEGER NOT NULL,
  PRIMARY KEY (record, part)) STRICT, WITHOUT ROWID;
CREATE TABLE links (
  record INTEGER NOT NULL REFERENCES reduces, part INTEGER NOT NULL, item INTEGER NOT NULL,
  other INTEGER NOT NULL, bytes_per_second REAL NOT NULL, round_trip_seconds REAL NOT NULL,
  PRIMARY KEY (record, part, item)) STRICT, WITHOUT ROWID;
CREATE TABLE ranges (
  record INTEGER NOT NULL REFERENCES records, part INTEGER NOT NULL, item INTEGER NOT NULL,
  first_batch INTEGER NOT NULL, end_batch INTEGER NOT NULL,
  PRIMARY KEY (record, part, item)) STRICT, WITHOUT ROWID;
CREATE TABLE commits (
  record INTEGER PRIMARY KEY REFERENCES records, outer_step INTEGER NOT NULL,
  attempt INTEGER NOT NULL, hash TEXT NOT NULL, exchange_seconds REAL NOT NULL,
  round_seconds REAL NOT NULL, why TEXT NOT NULL) STRICT;
CREATE TABLE results (
  record INTEGER NOT NULL REFERENCES commits, part INTEGER NOT NULL, hash TEXT NOT NULL,
  PRIMARY KEY (record, part)) STRICT, WITHOUT ROWID;
CREATE TABLE schedules (
  record INTEGER PRIMARY KEY REFERENCES records, inner_steps INTEGER NOT NULL,
  overlap INTEGER NOT NULL, codec TEXT NOT NULL, outer_lr REAL NOT NULL,
  predicted_seconds REAL NOT NULL) STRICT;
CREATE TABLE policies (
  record INTEGER PRIMARY KEY REFERENCES schedules, policy TEXT NOT NULL,
  min_inner_steps INTEGER NOT NULL, max_inner_steps INTEGER NOT NULL,
  may_overlap INTEGER NOT NULL, may_change_codec INTEGER NOT NULL, may_change_lr INTEGER NOT NULL,
  qsr_alpha REAL NOT NULL, round_bytes REAL NOT NULL, day_bytes REAL NOT NULL,
  parameters REAL NOT NULL, fragments INTEGER NOT NULL) STRICT;
CREATE TABLE voids (
  record INTEGER PRIMARY KEY REFERENCES records, first_outer_step INTEGER NOT NULL,
  why TEXT NOT NULL) STRICT;
CREATE INDEX reduces_by_outer_step ON reduces (outer_step, attempt);
CREATE VIEW members AS
  SELECT island, name, address, max(record) AS record FROM islands GROUP BY island;
CREATE VIEW committed AS
  SELECT outer_step, attempt, hash, datetime(unix_seconds, 'unixepoch') AS time,
    (SELECT max(reduces.record) FROM reduces WHERE reduces.outer_step = commits.outer_step
       AND reduces.attempt = commits.attempt AND reduces.record < commits.record) AS reduce,
    commits.record AS record
  FROM commits JOIN records USING (record)
  WHERE NOT EXISTS (SELECT 1 FROM voids WHERE voids.record > commits.record
                      AND voids.first_outer_step <= commits.outer_step);
CREATE VIEW trained AS
  SELECT outer_step, contributions.island, name, tokens, loss, first_batch, end_batch
  FROM committed
    JOIN contributions ON contributions.record = committed.reduce
    LEFT JOIN results ON results.record = committed.record AND results.part = contributions.part
    LEFT JOIN members ON members.island = contributions.island
    LEFT JOIN ranges ON ranges.record = contributions.record
      AND ranges.part = contributions.part
  WHERE results.hash IS NULL OR results.hash != '00000000000000000000000000000000';
)sql";

std::string to_hex(StateHash hash) {
  return atl::to_hex(Hash128{hash.high, hash.low});
}

// --- Writing

class Inserter {
 public:
  Inserter(Database& database, std::int64_t record) : database_(database), record_(record) {}

  void operator()(const LogStarted& x) {
    ATOLL_CHECK(x.fence <= kMaxInt64, "fence {}", x.fence);
    database_.run("INSERT INTO starts VALUES (?, ?)",
                  {record_, static_cast<std::int64_t>(x.fence)});
  }
  void operator()(const LogIsland& x) {
    database_.run("INSERT INTO islands VALUES (?, ?, ?, ?)",
                  {record_, std::int64_t{x.island}, x.name, x.address});
  }
  void operator()(const LogLease& x) {
    database_.run("INSERT INTO leases VALUES (?, ?)", {record_, std::int64_t{x.island}});
    ranges(0, x.ranges);
  }
  void operator()(const LogReturn& x) {
    database_.run("INSERT INTO returns VALUES (?, ?)", {record_, std::int64_t{x.island}});
    ranges(0, x.ranges);
  }
  void operator()(const LogReduce& x) {
    database_.run("INSERT INTO reduces VALUES (?, ?, ?, ?)",
                  {record_, x.outer_step, std::int64_t{x.attempt}, std::int64_t{x.fragment}});
    std::int64_t part = 0;
    for (const LogContribution& contribution : x.contributions) contribute(part++, contribution);
  }
  void operator()(const LogCommit& x) {
    database_.run("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?)",
                  {record_, x.outer_step, std::int64_t{x.attempt}, to_hex(x.hash),
                   x.exchange_seconds, x.round_seconds, x.why});
    if (x.next) schedule(*x.next);
    std::int64_t part = 0;
    for (const StateHash& hash : x.results) {
      database_.run("INSERT INTO results VALUES (?, ?, ?)", {record_, part++, to_hex(hash)});
    }
  }
  void operator()(const LogVoid& x) {
    database_.run("INSERT INTO voids VALUES (?, ?, ?)", {record_, x.first_outer_step, x.why});
  }
  void operator()(const LogFinished&) {}
  void operator()(const LogPolicy& x) {
    const PolicyPlan& plan = x.plan;
    schedule(plan.base);
    database_.run("INSERT INTO policies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  {record_, plan.policy, plan.min_inner_steps, plan.max_inner_steps,
                   std::int64_t{plan.may_overlap}, std::int64_t{plan.may_change_codec},
                   std::int64_t{plan.may_change_lr}, plan.qsr_alpha, plan.round_bytes,
                   plan.day_bytes, plan.parameters, plan.fragments});
  }

 private:
  void schedule(const RoundSchedule& x) {
    database_.run("INSERT INTO schedules VALUES (?, ?, ?, ?, ?, ?)",
                  {record_, x.inner_steps, x.overlap, x.codec, x.outer_lr, x.predicted_seconds});
  }
  void contribute(std::int64_t part, const LogContribution& x) {
    ATOLL_CHECK(std::isfinite(x.participant.weight) && std::isfinite(x.loss) &&
                    std::isfinite(x.norm) && x.participant.tokens >= 0,
                "island {}: weight {}, loss {}, norm {}, {} tokens", x.participant.island,
                x.participant.weight, x.loss, x.norm, x.participant.tokens);
    const Measurements& m = x.measured;
    database_.run("INSERT INTO contributions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  {record_, part, std::int64_t{x.participant.island}, x.participant.address,
                   x.participant.weight, x.participant.tokens, x.loss, x.norm, m.step_seconds,
                   m.learning_rate, m.exchange_seconds, m.codec_bytes_per_second, m.mean_norm,
                   std::int64_t{x.exchange}});
    ranges(part, x.consumed);
    std::int64_t item = 0;
    for (const LinkMeasurement& link : m.links) {
      database_.run("INSERT INTO links VALUES (?, ?, ?, ?, ?, ?)",
                    {record_, part, item++, std::int64_t{link.island}, link.bytes_per_second,
                     link.round_trip_seconds});
    }
  }
  void ranges(std::int64_t part, const std::vector<BatchRange>& values) {
    std::int64_t item = 0;
    for (const BatchRange& range : values) {
      ATOLL_CHECK(range.begin >= 0 && range.begin <= range.end, "batches {} to {}", range.begin,
                  range.end);
      database_.run("INSERT INTO ranges VALUES (?, ?, ?, ?, ?)",
                    {record_, part, item++, range.begin, range.end});
    }
  }

  Database& database_;
  std::int64_t record_;
};

// --- Reading

class Reader {
 public:
  Reader(Database& database, std::int64_t record) : database_(database), record_(record) {}

  LogBody body(const std::string& kind) {
    if (kind == "start") return start();
    if (kind == "island") return island();
    if (kind == "lease") return lease<LogLease>("SELECT island FROM leases WHERE record = ?");
    if (kind == "return") return lease<LogReturn>("SELECT island FROM returns WHERE record = ?");
    if (kind == "reduce") return reduce();
    if (kind == "commit") return commit();
    if (kind == "void") return lost();
    if (kind == "finish") return LogFinished{};
    if (kind == "policy") return policy();
    throw damaged_error("ledger {} is damaged: record {} is of no known kind; {}",
                        database_.path().string(), record_, kDamageRemedy);
  }

 private:
  // The one row that belongs to the record.
  void only(const char* sql, const std::function<void(const SqlRow&)>& use) {
    bool found = false;
    database_.query(sql, {record_}, [&](const SqlRow& row) {
      use(row);
      found = true;
    });
    if (found) return;
    throw damaged_error("ledger {} is damaged: record {} has lost its row; {}",
                        database_.path().string(), record_, kDamageRemedy);
  }
  LogStarted start() {
    LogStarted x;
    only("SELECT fence FROM starts WHERE record = ?",
         [&](const SqlRow& row) { x.fence = row.natural(0, kMaxInt64); });
    return x;
  }
  LogIsland island() {
    LogIsland x;
    only("SELECT island, name, address FROM islands WHERE record = ?", [&](const SqlRow& row) {
      x.island = static_cast<IslandId>(row.natural(0, kMaxUint32));
      x.name = row.text(1);
      x.address = row.text(2);
    });
    return x;
  }
  template <typename Body>
  Body lease(const char* sql) {
    Body x;
    only(sql,
         [&](const SqlRow& row) { x.island = static_cast<IslandId>(row.natural(0, kMaxUint32)); });
    x.ranges = ranges(0);
    return x;
  }
  LogReduce reduce() {
    LogReduce x;
    only("SELECT outer_step, attempt, fragment FROM reduces WHERE record = ?",
         [&](const SqlRow& row) {
           x.outer_step = row.integer(0);
           x.attempt = static_cast<std::uint32_t>(row.natural(1, kMaxUint32));
           x.fragment = static_cast<int>(row.natural(2, kMaxInt32));
         });
    database_.query(
        "SELECT island, address, weight, tokens, loss, norm, step_seconds, learning_rate, "
        "exchange_seconds, codec_bytes_per_second, mean_norm, exchange FROM contributions "
        "WHERE record = ? "
        "ORDER BY part",
        {record_}, [&](const SqlRow& row) {
          LogContribution& c = x.contributions.emplace_back();
          c.participant.island = static_cast<IslandId>(row.natural(0, kMaxUint32));
          c.participant.address = row.text(1);
          c.participant.weight = row.real(2);
          c.participant.tokens = static_cast<std::int64_t>(row.natural(3, kMaxInt64));
          c.loss = row.real(4);
          c.norm = row.real(5);
          c.measured = {.step_seconds = row.real(6),
                        .learning_rate = row.real(7),
                        .exchange_seconds = row.real(8),
                        .codec_bytes_per_second = row.real(9),
                        .mean_norm = row.real(10)};
          c.exchange = static_cast<int>(row.natural(11, kMaxInt32));
        });
    std::int64_t part = 0;
    for (LogContribution& contribution : x.contributions) {
      contribution.measured.links = links(part);
      contribution.consumed = ranges(part++);
    }
    return x;
  }
  LogCommit commit() {
    LogCommit x;
    only(
        "SELECT outer_step, attempt, hash, exchange_seconds, round_seconds, why FROM commits "
        "WHERE record = ?",
        [&](const SqlRow& row) {
          x.outer_step = row.integer(0);
          x.attempt = static_cast<std::uint32_t>(row.natural(1, kMaxUint32));
          x.hash = state_hash(row.text(2));
          x.exchange_seconds = row.real(3);
          x.round_seconds = row.real(4);
          x.why = row.text(5);
        });
    x.next = schedule();
    database_.query("SELECT hash FROM results WHERE record = ? ORDER BY part", {record_},
                    [&](const SqlRow& row) { x.results.push_back(state_hash(row.text(0))); });
    return x;
  }
  // Not there: none was written.
  std::optional<RoundSchedule> schedule() {
    std::optional<RoundSchedule> x;
    database_.query(
        "SELECT inner_steps, overlap, codec, outer_lr, predicted_seconds FROM schedules "
        "WHERE record = ?",
        {record_}, [&](const SqlRow& row) {
          x = {.inner_steps = row.integer(0),
               .overlap = row.integer(1),
               .codec = row.text(2),
               .outer_lr = row.real(3),
               .predicted_seconds = row.real(4)};
        });
    return x;
  }
  LogPolicy policy() {
    LogPolicy x;
    only(
        "SELECT policy, min_inner_steps, max_inner_steps, may_overlap, may_change_codec, "
        "may_change_lr, qsr_alpha, round_bytes, day_bytes, parameters, fragments FROM policies "
        "WHERE record = ?",
        [&](const SqlRow& row) {
          x.plan = {.policy = row.text(0),
                    .min_inner_steps = row.integer(1),
                    .max_inner_steps = row.integer(2),
                    .may_overlap = row.integer(3) != 0,
                    .may_change_codec = row.integer(4) != 0,
                    .may_change_lr = row.integer(5) != 0,
                    .qsr_alpha = row.real(6),
                    .round_bytes = row.real(7),
                    .day_bytes = row.real(8),
                    .parameters = row.real(9),
                    .fragments = row.integer(10)};
        });
    x.plan.base = schedule().value_or(RoundSchedule{});
    return x;
  }
  std::vector<LinkMeasurement> links(std::int64_t part) {
    std::vector<LinkMeasurement> values;
    database_.query(
        "SELECT other, bytes_per_second, round_trip_seconds FROM links WHERE record = ? AND "
        "part = ? ORDER BY item",
        {record_, part}, [&](const SqlRow& row) {
          values.push_back({.island = static_cast<IslandId>(row.natural(0, kMaxUint32)),
                            .bytes_per_second = row.real(1),
                            .round_trip_seconds = row.real(2)});
        });
    return values;
  }
  LogVoid lost() {
    LogVoid x;
    only("SELECT first_outer_step, why FROM voids WHERE record = ?", [&](const SqlRow& row) {
      x.first_outer_step = row.integer(0);
      x.why = row.text(1);
    });
    return x;
  }
  std::vector<BatchRange> ranges(std::int64_t part) {
    std::vector<BatchRange> values;
    database_.query(
        "SELECT first_batch, end_batch FROM ranges WHERE record = ? AND part = ? ORDER BY item",
        {record_, part}, [&](const SqlRow& row) {
          const std::uint64_t end = row.natural(1, kMaxInt64);
          values.push_back(
              {static_cast<std::int64_t>(row.natural(0, end)), static_cast<std::int64_t>(end)});
        });
    return values;
  }
  // What to_hex wrote; anything else gives zeros, which the record's checksum does not fit.
  static StateHash state_hash(const std::string& text) {
    if (text.size() != 32) return {};
    StateHash hash;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::size_t digit = std::string_view("0123456789abcdef").find(text[i]);
      if (digit == std::string_view::npos) return {};
      std::uint64_t& word = i < 16 ? hash.high : hash.low;
      word = word << 4 | digit;
    }
    return hash;
  }

  Database& database_;
  std::int64_t record_;
};

}  // namespace

void make_tables(Database& database, const RunIdentity& identity) {
  database.execute(kTables);
  database.run("INSERT INTO run VALUES (1, ?, ?, ?, ?, ?, ?)",
               {identity.run, identity.version, identity.model, identity.tokenizer, identity.data,
                identity.settings});
  database.execute(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}",
                               kApplicationId, kVersion));
}

void check_tables(Database& database) {
  const std::string path = database.path().string();
  const std::int64_t application = database.number("PRAGMA application_id");
  const std::int64_t version = database.number("PRAGMA user_version");
  if (application != kApplicationId) {
    if (application == 0 && database.number("SELECT count(*) FROM sqlite_schema") == 0) {
      throw damaged_error("ledger {} is damaged: it is empty; {}", path, kDamageRemedy);
    }
    throw user_error("{} is an SQLite file, but no ledger of atoll; give another directory", path);
  }
  if (version != kVersion) {
    throw user_error(
        "ledger {} is of version {}, and this atoll knows version {}; use the atoll "
        "that wrote it",
        path, version, kVersion);
  }
  std::string problem;
  database.query("PRAGMA quick_check(1)", {}, [&](const SqlRow& row) { problem = row.text(0); });
  if (problem == "ok") return;
  throw damaged_error("ledger {} is damaged: {}; {}", path, problem, kDamageRemedy);
}

RunIdentity read_identity(Database& database) {
  RunIdentity identity;
  bool found = false;
  database.query(
      "SELECT run, version, model, tokenizer, data, settings FROM run", {}, [&](const SqlRow& row) {
        identity = {row.text(0), row.text(1), row.text(2), row.text(3), row.text(4), row.text(5)};
        found = true;
      });
  if (found) return identity;
  throw damaged_error("ledger {} is damaged: it does not say whose it is; {}",
                      database.path().string(), kDamageRemedy);
}

LedgerEnd insert_record(Database& database, const LedgerEnd& end, const LogRecord& record) {
  LedgerEnd next = end;
  ++next.num_records;
  next.checksum = checksum_of(end.checksum, next.num_records, record);
  if (const auto* started = std::get_if<LogStarted>(&record.body)) next.fence = started->fence;
  database.run("INSERT INTO records VALUES (?, ?, ?, ?)",
               {next.num_records, record.unix_seconds, std::string(kKinds[record.body.index()]),
                atl::to_hex(next.checksum)});
  std::visit(Inserter(database, next.num_records), record.body);
  return next;
}

LedgerEnd read_records(Database& database, const RunIdentity& identity,
                       const std::function<void(LogRecord&&)>& use) {
  LedgerEnd end;
  end.checksum = checksum_of(identity);
  database.query(
      "SELECT record, unix_seconds, kind, checksum FROM records ORDER BY record", {},
      [&](const SqlRow& row) {
        const std::int64_t number = row.integer(0);
        LogRecord record = {row.real(1), Reader(database, number).body(row.text(2))};
        end.checksum = checksum_of(end.checksum, ++end.num_records, record);
        if (number != end.num_records || row.text(3) != atl::to_hex(end.checksum)) {
          throw damaged_error(
              "ledger {} is damaged: record {} is not what was written, or one before it is "
              "missing; {}",
              database.path().string(), number, kDamageRemedy);
        }
        if (const auto* started = std::get_if<LogStarted>(&record.body)) end.fence = started->fence;
        use(std::move(record));
      });
  return end;
}

}  // namespace atl::island
