#pragma once

// What a study has decided and found, on disk before anybody acts on it.

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/tune/trial/event.h"

namespace atl::tune {

/// The store's name in the directory of a study.
inline constexpr const char* kStudyFile = "study.sqlite";
/// The study's settings beside it, as whoever began the study gave them.
inline constexpr const char* kStudyToml = "study.toml";

/// In the directory of a worker: which study it works for.
inline constexpr const char* kWorkerFile = "study.identity";

/// Whether the directory has a store: only a tuner that was killed in its first moments leaves none
/// beside the settings, and then nothing was decided.
bool has_begun(const std::filesystem::path& dir);

/// Whether a tuner has written to `dir` what resumes its study. Any directory may have a
/// study.toml.
bool has_tuner_files(const std::filesystem::path& dir);

/// An event and when it was written.
struct LoggedEvent {
  double unix_seconds = 0;
  Event event;
};

/// All that a store holds.
struct StudyContent {
  std::string identity;   ///< Study::identity()
  std::string directory;  ///< where `atoll tune` was called: what relative paths begin from
  std::vector<LoggedEvent> events;
};

/// The log of a study: SQLite as the ledger of islands is (decision 0033), each event chained to
/// the one before by a checksum. One process writes it.
class StudyStore {
 public:
  /// Opens the store in `dir`, or makes it. Throws Error(kUser) when it is of another study (naming
  /// the first difference), or another tuner has it; Error(kDamaged); Error(kIo). `prepare` is
  /// called where a store is about to be made: what it writes is there whenever the store is.
  StudyStore(const std::filesystem::path& dir, const StudyContent& study,
             const std::function<void()>& prepare = {});
  ~StudyStore();
  StudyStore(const StudyStore&) = delete;
  StudyStore& operator=(const StudyStore&) = delete;

  /// What it held when it was opened.
  const std::vector<LoggedEvent>& past() const { return past_; }
  /// Writes events, all or none; they are on disk when this returns. Throws Error(kIo).
  void append(std::span<const Event> events);

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::vector<LoggedEvent> past_;
};

/// Reads and checks the store in `dir`, beside a tuner that may be writing it. Throws as above;
/// Error(kUser) when there is none.
StudyContent read_study(const std::filesystem::path& dir);

}  // namespace atl::tune
