#include "atoll/tune/trial/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "atoll/base/error.h"
#include "atoll/base/files/database.h"
#include "atoll/base/files/file.h"

namespace atl::tune {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Store : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "atoll-study-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(dir_); }

  static StudyContent study() {
    return {.identity = "study.seed 1\noptim.lr 0.1\n", .directory = "/here"};
  }
  static std::vector<Event> events() {
    return {{.kind = Event::Kind::kOpen},
            {.kind = Event::Kind::kSuggest,
             .trial = 0,
             .step = 30,
             .units = {0.1, 1.0 / 3},
             .settings = {{"optim.lr", "0.003"}, {"optim.kind", "\"adamw\""}},
             .note = "generation 0",
             .bracket = 2,
             .member = 1,
             .parent = 4,
             .fork_step = 10},
            {.kind = Event::Kind::kStart, .trial = 0, .step = 30},
            {.kind = Event::Kind::kResult,
             .trial = 0,
             .step = 30,
             .values = {2.5, NAN},
             .tokens = 4096,
             .seconds = 1.25},
            {.kind = Event::Kind::kGoOn, .trial = 0, .step = 90},
            {.kind = Event::Kind::kEnd, .trial = 0, .end = End::kDiverged, .why = "a \"word\""}};
  }
  std::string refusal(const StudyContent& other) {
    try {
      StudyStore store(dir_, other);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path dir_;
};

TEST_F(Store, KeepsEveryEventAsItWas) {
  {
    StudyStore store(dir_, study());
    EXPECT_TRUE(store.past().empty());
    store.append(events());
  }
  const StudyContent read = read_study(dir_);
  EXPECT_EQ(read.identity, study().identity);
  ASSERT_EQ(read.events.size(), events().size());
  for (std::size_t i = 0; i < read.events.size(); ++i) {
    const Event &is = read.events[i].event, was = events()[i];
    EXPECT_EQ(is.kind, was.kind);
    EXPECT_EQ(is.trial, was.trial);
    EXPECT_EQ(is.units, was.units);  // to the last bit
    EXPECT_EQ(is.settings, was.settings);
    EXPECT_EQ(to_json(is), to_json(was));
  }
}

TEST_F(Store, IsOfOneStudyAndOneTuner) {
  StudyContent other = study();
  {
    StudyStore store(dir_, study());
    EXPECT_THAT(refusal(study()), HasSubstr("is in use by another process"));
  }
  other.identity = "study.seed 1\noptim.lr 0.2\n";
  EXPECT_THAT(refusal(other), HasSubstr("is the store of another study: its optim.lr is 0.1, here "
                                        "it is 0.2"));
  EXPECT_EQ(refusal(study()), "");
}

// A tuner may be killed at any moment: what `prepare` writes is there before the store is.
TEST_F(Store, IsMadeAfterWhatAResumedStudyReads) {
  int calls = 0;
  const auto prepare = [&] {
    ++calls;
    EXPECT_FALSE(has_begun(dir_));
    write_file(dir_ / kStudyToml, "");
  };
  StudyStore(dir_, study(), prepare);
  EXPECT_TRUE(has_begun(dir_));
  StudyStore(dir_, study(), prepare);
  EXPECT_EQ(calls, 1);
}

TEST_F(Store, ThatIsNotThereIsDescribedByWhatIs) {
  const auto why = [&] {
    try {
      read_study(dir_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(why(), HasSubstr("there is no study in " + dir_.string()));
  write_file(dir_ / kStudyToml, "");
  EXPECT_THAT(why(), AllOf(HasSubstr(dir_.string() + " has a file study.toml, and no study"),
                           HasSubstr("`atoll tune " + (dir_ / kStudyToml).string() + "` begins")));
  fs::remove(dir_ / kStudyToml);
  fs::create_directory(dir_ / "trials");
  EXPECT_THAT(why(), HasSubstr("give the `atoll tune` command that began it again"));
  write_file(dir_ / kStudyToml, "");
  EXPECT_THAT(why(), HasSubstr("`atoll tune resume " + dir_.string() + "` begins it"));
  write_file(dir_ / kWorkerFile, "");
  EXPECT_THAT(why(), HasSubstr("is the directory of a worker"));
}

TEST_F(Store, FindsADamagedEvent) {
  { StudyStore(dir_, study()).append(events()); }
  {
    Database database(dir_ / kStudyFile, Database::Open::kExisting, "study");
    database.execute("UPDATE events SET body = replace(body, '2.5', '1.5') WHERE kind = 'result'");
  }
  try {
    read_study(dir_);
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
    EXPECT_THAT(error.what(), HasSubstr("event 4 is not as it was written"));
  }
}

// A writer is killed in the midst of its transactions; all that it said was written is there.
TEST_F(Store, AKillLosesNothingThatWasAcknowledged) {
  int acknowledged = 0;
  for (int round = 0; round < 5; ++round) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      StudyStore store(dir_, study());
      int next = static_cast<int>(store.past().size());
      for (;; next += 2) {
        const Event two[2] = {{.kind = Event::Kind::kSuggest, .trial = next, .units = {0.5}},
                              {.kind = Event::Kind::kSuggest, .trial = next + 1, .units = {0.5}}};
        store.append(two);
        const int count = next + 2;
        if (::write(pipe[1], &count, sizeof count) != sizeof count) ::_exit(1);
      }
    }
    ::close(pipe[1]);
    for (int i = 0; i < 3 + round; ++i) {
      ASSERT_EQ(::read(pipe[0], &acknowledged, sizeof acknowledged),
                static_cast<ssize_t>(sizeof acknowledged));
    }
    ::kill(child, SIGKILL);
    int more = 0;
    while (::read(pipe[0], &more, sizeof more) == static_cast<ssize_t>(sizeof more)) {
      acknowledged = more;
    }
    ::waitpid(child, nullptr, 0);
    ::close(pipe[0]);
    const StudyContent read = read_study(dir_);
    EXPECT_GE(static_cast<int>(read.events.size()), acknowledged);
    EXPECT_EQ(read.events.size() % 2, 0u);  // never half of what was written together
    for (std::size_t i = 0; i < read.events.size(); ++i) {
      EXPECT_EQ(read.events[i].event.trial, static_cast<int>(i));
    }
  }
}

}  // namespace
}  // namespace atl::tune
