#include "atoll/tune/trial/store.h"

#include <chrono>
#include <limits>
#include <map>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/database.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/lock.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/hash.h"

namespace atl::tune {

namespace fs = std::filesystem;

/// The last event of a log.
struct LogEnd {
  std::int64_t number = 0;
  std::string checksum;
};

namespace {

constexpr const char* kTrials = "trials";
constexpr const char* kKind = "study";
constexpr std::int64_t kApplicationId = 0x41544F53;  // "ATOS"
constexpr std::int64_t kVersion = 1;

// The views are for people with sqlite3.
constexpr const char* kTables = R"sql(
CREATE TABLE study (
  id INTEGER PRIMARY KEY CHECK (id = 1), identity TEXT NOT NULL,
  directory TEXT NOT NULL) STRICT;
CREATE TABLE events (
  event INTEGER PRIMARY KEY, unix_seconds REAL NOT NULL, kind TEXT NOT NULL,
  trial INTEGER NOT NULL, body TEXT NOT NULL, checksum TEXT NOT NULL) STRICT;
CREATE VIEW trials AS
  SELECT trial, body ->> 'settings' AS settings, body ->> 'parent' AS parent,
    body ->> 'fork_step' AS fork_step,
    (SELECT e.body ->> 'end' FROM events e WHERE e.kind = 'end' AND e.trial = events.trial) AS how
  FROM events WHERE kind = 'suggest';
CREATE VIEW results AS
  SELECT trial, body ->> 'step' AS step, body ->> 'values' AS "values",
    body ->> 'tokens' AS tokens, body ->> 'seconds' AS seconds
  FROM events WHERE kind = 'result';
)sql";

double unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string chained(const std::string& before, std::int64_t number, double time,
                    const std::string& kind, std::int64_t trial, const std::string& body) {
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}", before, number, time, kind, trial, body);
  return to_hex(hash_bytes(text.data(), text.size()));
}

std::string first_link(const StudyContent& study) {
  return chained(study.identity, 0, 0, "", 0, study.directory);
}

void make_tables(Database& database, const StudyContent& study) {
  database.execute(kTables);
  database.execute(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}",
                               kApplicationId, kVersion));
  database.run("INSERT INTO study VALUES (1, ?, ?)", {study.identity, study.directory});
}

LogEnd read_events(Database& database, StudyContent& content) {
  const std::string path = database.path().string();
  if (database.number("PRAGMA application_id") != kApplicationId) {
    throw damaged_error("{} is no store of a study; {}", path, kDamageRemedy);
  }
  if (const std::int64_t version = database.number("PRAGMA user_version"); version != kVersion) {
    throw user_error("study {} has format {}, and this atoll knows {}; take a newer atoll", path,
                     version, kVersion);
  }
  bool found = false;
  database.query("SELECT identity, directory FROM study", {}, [&](const SqlRow& row) {
    content.identity = row.text(0);
    content.directory = row.text(1);
    found = true;
  });
  if (!found) throw damaged_error("study {} is damaged: it is empty; {}", path, kDamageRemedy);
  LogEnd end = {0, first_link(content)};
  database.query(
      "SELECT event, unix_seconds, kind, trial, body, checksum FROM events ORDER BY event", {},
      [&](const SqlRow& row) {
        const std::int64_t number = row.integer(0);
        const std::string kind = row.text(2), body = row.text(4);
        const std::int64_t trial = row.integer(3);
        const std::string checksum = chained(end.checksum, number, row.real(1), kind, trial, body);
        if (number != end.number + 1 || checksum != row.text(5)) {
          throw damaged_error("study {} is damaged: event {} is not as it was written; {}", path,
                              number, kDamageRemedy);
        }
        end = {number, checksum};
        content.events.push_back(
            {row.real(1), parse_event(kind, static_cast<int>(trial), body,
                                      fmt::format("study {}, event {}", path, number))});
      });
  return end;
}

std::map<std::string, std::string> lines_of(const std::string& identity) {
  std::map<std::string, std::string> lines;
  std::istringstream stream(identity);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t space = line.find(' ');
    lines[line.substr(0, space)] = space == line.npos ? "" : line.substr(space + 1);
  }
  return lines;
}

void check_same_study(const fs::path& path, const StudyContent& found,
                      const StudyContent& expected) {
  if (found.identity == expected.identity) return;
  const auto was = lines_of(found.identity), is = lines_of(expected.identity);
  std::string difference = "the order of its space";
  for (const auto& [key, value] : was) {
    const auto now = is.find(key);
    if (now != is.end() && now->second == value) continue;
    difference = fmt::format("its {} is {}, here it is {}", key, value,
                             now == is.end() ? "not set" : now->second);
    break;
  }
  for (const auto& [key, value] : is) {
    if (was.contains(key)) continue;
    difference = fmt::format("it has no {}, here it is {}", key, value);
    break;
  }
  throw user_error(
      "{} is the store of another study: {}; give another study.dir, or the settings "
      "that it was begun with",
      path.string(), difference);
}

void remove_leftover(const fs::path& path) {
  std::error_code failure;
  fs::remove(path, failure);
  if (failure) throw io_error("cannot remove", path, failure.value());
}

// Under another name first, so that a store is there with its tables or not at all.
void make_store(const fs::path& path, const StudyContent& study) {
  const fs::path made = path.string() + ".new";
  remove_leftover(made);
  remove_leftover(made.string() + "-journal");
  remove_leftover(path.string() + "-journal");
  {
    Database database(made, Database::Open::kOrMake, kKind);
    database.prepare_for_writing();
    Transaction transaction(database, Transaction::Kind::kWrite);
    make_tables(database, study);
    transaction.commit();
  }
  remove_leftover(made.string() + "-journal");
  std::error_code failure;
  fs::rename(made, path, failure);
  if (failure) throw io_error("cannot put in place", path, failure.value());
  sync_directory(path.parent_path());
}

}  // namespace

struct StudyStore::State {
  // Not the study's directory itself: whoever makes its tokens locks that.
  explicit State(const fs::path& dir)
      : lock(trials_in(dir), "a tuner is at work there; wait for it, or give another study.dir") {}

  static fs::path trials_in(const fs::path& dir) {
    std::error_code failure;
    fs::create_directories(dir / kTrials, failure);
    if (failure) throw io_error("cannot make", dir / kTrials, failure.value());
    return dir / kTrials;
  }

  DirectoryLock lock;
  std::optional<Database> database;
  LogEnd end;
};

StudyStore::StudyStore(const fs::path& dir, const StudyContent& study,
                       const std::function<void()>& prepare)
    : state_(std::make_unique<State>(dir)) {
  const fs::path path = dir / kStudyFile;
  if (!path_exists(path)) {
    if (prepare) prepare();
    make_store(path, study);
  }
  Database& database = state_->database.emplace(path, Database::Open::kExisting, kKind);
  database.prepare_for_writing();
  Transaction transaction(database, Transaction::Kind::kRead);
  StudyContent found;
  state_->end = read_events(database, found);
  check_same_study(path, found, study);
  past_ = std::move(found.events);
}

StudyStore::~StudyStore() = default;

void StudyStore::append(std::span<const Event> events) {
  if (events.empty()) return;
  Database& database = *state_->database;
  Transaction transaction(database, Transaction::Kind::kWrite);
  LogEnd end = state_->end;
  const double now = unix_seconds();
  for (const Event& event : events) {
    const std::string kind = name_of(event.kind), body = to_json(event);
    const std::int64_t number = end.number + 1;
    end = {number, chained(end.checksum, number, now, kind, event.trial, body)};
    database.run("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
                 {number, now, kind, std::int64_t{event.trial}, body, end.checksum});
  }
  transaction.commit();
  state_->end = end;
}

bool has_begun(const fs::path& dir) {
  return path_exists(dir / kStudyFile);
}

// A tuner makes the folder of its trials before it writes anything.
bool has_tuner_files(const fs::path& dir) {
  return path_exists(dir / kStudyToml) && !path_exists(dir / kWorkerFile) &&
         (has_begun(dir) || path_exists(dir / kTrials));
}

StudyContent read_study(const fs::path& dir) {
  const fs::path path = dir / kStudyFile;
  if (!has_begun(dir)) {
    if (path_exists(dir / kWorkerFile)) {
      throw user_error("{} is the directory of a worker (`atoll tune work`), not of a study",
                       dir.string());
    }
    if (has_tuner_files(dir)) {
      throw user_error("the study in {0} has no trial yet; `atoll tune resume {0}` begins it",
                       dir.string());
    }
    if (path_exists(dir / kStudyToml)) {
      const std::string file = (dir / kStudyToml).string();
      throw user_error(
          "{} has a file {}, and no study: if that is a study file, its study is in the directory "
          "that it names as study.dir, and `atoll tune {}` begins it or goes on",
          dir.string(), kStudyToml, file);
    }
    if (path_exists(dir / kTrials)) {
      throw user_error(
          "the tuner of {} was killed before it wrote anything; give the `atoll tune` command that "
          "began it again",
          dir.string());
    }
    if (path_exists(dir) && !directory_exists(dir)) {
      throw user_error(
          "{} is a file, and a study is a directory; give the study.dir of `atoll tune`",
          dir.string());
    }
    throw user_error("there is no study in {}{}; give the study.dir of `atoll tune`", dir.string(),
                     path_exists(dir) ? "" : advice_for_absent(dir));
  }
  Database database(path, Database::Open::kExisting, kKind);
  Transaction transaction(database, Transaction::Kind::kRead);
  StudyContent content;
  read_events(database, content);
  return content;
}

}  // namespace atl::tune
