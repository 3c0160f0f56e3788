// Runs that are killed while their tokens are made, or that lose them: the same command goes on.
// tests/e2e/killed_data.py does the same at random, with islands and ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>

#include "train_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::atoll;
using e2e::Finished;
using e2e::Program;
using e2e::Train;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class KilledData : public Train {
 protected:
  // Names in the directory of tokens that have `part` in them.
  int count(const std::string& run, const std::string& part) const {
    std::error_code none_yet;
    int found = 0;
    for (fs::directory_iterator entry(data(run), none_yet), end; !none_yet && entry != end;
         entry.increment(none_yet)) {
      found += entry->path().filename().string().find(part) != std::string::npos ? 1 : 0;
    }
    return found;
  }
  fs::path data(const std::string& run) const { return root_.path / run / "data"; }
  fs::path file(const std::string& run, const std::string& begin) const {
    for (const auto& entry : fs::directory_iterator(data(run))) {
      if (entry.path().filename().string().starts_with(begin)) return entry.path();
    }
    return {};
  }
  // A run that has a checkpoint, and what its tokens are.
  std::string begun(const std::string& run) const {
    trained(run, kShort);
    return read_file(data(run) / "corpus.json");
  }
  // Goes on from the checkpoint; the tokens must be `expected`.
  void goes_on(const std::string& run, const std::string& expected) const {
    const Finished finished = trained(run, kLonger);
    EXPECT_THAT(finished.err, HasSubstr("(step 2)"));
    EXPECT_EQ(read_file(data(run) / "corpus.json"), expected);
    const Finished doctor = atoll({"doctor", path(run)});
    EXPECT_EQ(doctor.exit_code, 0) << doctor.err;
    EXPECT_THAT(doctor.out, Not(HasSubstr("settings.toml")));
    EXPECT_THAT(doctor.out, HasSubstr("held-out tokens, vocabulary 290: whole"));
  }

  const std::vector<std::string> kShort = {"--train.steps=2", "--device.threads=1"};
  const std::vector<std::string> kLonger = {"--train.steps=4", "--device.threads=1"};
};

// Each kill comes once a file of another stage is there. A stage that ends too soon to be seen is
// killed at a later one.
TEST_F(KilledData, TheNextStartMakesTheTokens) {
  const std::string expected = begun("whole");
  for (const char* stage :
       {"", "train-", ".atsh.tmp-", "heldout-", "tokenizer.json", ".json.tmp-"}) {
    SCOPED_TRACE(stage);
    fs::remove_all(root_.path / "run");
    Program program(command("run", kShort));
    EXPECT_TRUE(soon([&] {
      return (fs::exists(data("run")) && *stage == 0) || count("run", stage) > 0 ||
             count("run", "corpus.request") > 0;
    })) << program.errors();
    program.send(SIGKILL);
    program.wait();
    // What another process, of that name's number, would have left.
    write_file(data("run") / "train-00000-01234567.atsh.tmp-1", "half");
    fs::remove(data("run") / "corpus.request");
    fs::remove_all(root_.path / "run/checkpoints");
    trained("run", kShort);
    EXPECT_EQ(count("run", ".tmp-"), 0);
    EXPECT_EQ(read_file(data("run") / "corpus.json"), expected);
  }
}

TEST_F(KilledData, RemovedOrDamagedTokensAreMadeAgain) {
  const std::string expected = begun("run");
  const std::vector<std::pair<const char*, std::function<void()>>> harms = {
      {"removed", [&] { fs::remove_all(data("run")); }},
      {"no request", [&] { fs::remove(data("run") / "corpus.request"); }},
      {"damaged shard",
       [&] {
         std::string content = read_file(file("run", "train-"));
         content[content.size() / 2] ^= 1;
         write_file(file("run", "train-"), content);
         const Finished doctor = atoll({"doctor", path("run")});
         EXPECT_EQ(doctor.exit_code, 1);
         EXPECT_THAT(doctor.err,
                     AllOf(HasSubstr(file("run", "train-").filename().string()),
                           HasSubstr("`atoll train` makes"), Not(HasSubstr("atoll tokenize"))));
       }},
  };
  for (const auto& [what, harm] : harms) {
    SCOPED_TRACE(what);
    harm();
    goes_on("run", expected);
    fs::remove_all(checkpoint("run", 4));
  }
}

TEST_F(KilledData, OtherTokensAreRefused) {
  begun("run");
  const std::string text = read_file(root_.path / "text.txt");
  write_file(root_.path / "text.txt", text + "another line.\n");
  fs::remove_all(data("run"));
  const Finished refused = train("run", kLonger);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("there are no tokens in"), HasSubstr("other tokens now"),
                                 HasSubstr("give back the same text")));
  write_file(root_.path / "text.txt", text);
  trained("run", kLonger);
}

}  // namespace
}  // namespace atl
