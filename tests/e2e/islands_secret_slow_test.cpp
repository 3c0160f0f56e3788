// Who may take part in a run of islands on one machine: nobody who does not know its secret.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "atoll/base/files/file.h"
#include "atoll/island/ledger/ledger.h"
#include "atoll/wire/blob_client.h"
#include "atoll/wire/secret.h"
#include "islands_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::atoll;
using e2e::Finished;
using e2e::Program;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class RunOnOneMachine : public e2e::Islands {
 protected:
  std::string run_file(const std::string& name) const {
    return (root_.path / "run" / name).string();
  }
  // Steps of some milliseconds on any machine, so that others can come before the end.
  static std::vector<std::string> slow(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--model.hidden_size=64", "--train.context=128"});
    return more;
  }
  /// Of another user, say, who sees the address.
  std::vector<std::string> coming(const std::string& name, const std::string& secret) const {
    std::vector<std::string> more = slow({"--outer.islands=2", "--train.steps=500"});
    if (!secret.empty()) more.push_back("--island.secret=" + secret);
    return joining(name, name, place_, more);
  }
  /// Where others fetch from the islands, as the ledger has it.
  std::vector<std::string> islands_of(const std::string& ledger) const {
    std::vector<std::string> all;
    for (const island::LogRecord& record : island::read_ledger(ledger).records) {
      const auto* one = std::get_if<island::LogIsland>(&record.body);
      if (one != nullptr) all.push_back(one->address);
    }
    return all;
  }
  static wire::TransferResult fetch(const std::string& address, const std::string& secret) {
    std::vector<bool> done;
    wire::BlobClientOptions options = {.address = address};
    if (!secret.empty()) options.secret = secret;
    return wire::BlobClient(options).fetch({.key = "anything", .bytes = 1}, done, [](auto...) {});
  }
  /// Files of the run that hold a text.
  std::vector<std::string> files_with(const std::string& text) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(root_.path)) {
      if (!entry.is_regular_file()) continue;
      if (read_file(entry.path()).find(text) != std::string::npos) {
        found.push_back(entry.path().string());
      }
    }
    return found;
  }

  std::string place_;
};

TEST_F(RunOnOneMachine, IsForThoseThatKnowItsSecret) {
  Program run(islanded("run", 2, 500, slow()));
  static const std::string kWords = "--island.coordinator=";
  ASSERT_TRUE(soon([&] { return run.errors().find(kWords) != std::string::npos; }));
  const std::string said = run.errors();
  const std::size_t begin = said.find(kWords) + kWords.size();
  place_ = said.substr(begin, said.find(' ', begin) - begin);
  const std::string secret = run_file("coordinator/secret");
  EXPECT_THAT(said, HasSubstr("--island.secret=" + secret + " "));

  const Finished stranger = atoll(coming("mallory", ""));
  EXPECT_EQ(stranger.exit_code, 2) << stranger.err;
  EXPECT_THAT(stranger.err, HasSubstr("this run has a secret, and none was shown"));
  wire::Secret::make(path("another"));
  const Finished guesser = atoll(coming("mallory", path("another")));
  EXPECT_EQ(guesser.exit_code, 2) << guesser.err;
  EXPECT_THAT(guesser.err, HasSubstr("is not that of this run"));

  const std::string ledger = run_file("coordinator/ledger.db");
  ASSERT_TRUE(soon([&] { return fs::exists(ledger) && islands_of(ledger).size() >= 2; }));
  for (const std::string& address : islands_of(ledger)) {
    EXPECT_EQ(fetch(address, "").end, wire::TransferEnd::kRefused) << address;
    EXPECT_THAT(fetch(address, "").why, HasSubstr("none was shown"));
    // The secret lets a process ask; what an island serves is for those that have joined.
    EXPECT_EQ(fetch(address, secret).end, wire::TransferEnd::kRefused) << address;
    EXPECT_THAT(fetch(address, secret).why, HasSubstr("has not joined"));
  }

  const std::string text = read_file(secret).substr(0, 64);
  struct stat status {};
  ASSERT_EQ(::stat(secret.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  EXPECT_THAT(processes(), SizeIs(3));
  for (const pid_t pid : processes()) {
    EXPECT_THAT(command_line(pid), Not(HasSubstr(text)));
    EXPECT_THAT(proc_file(pid, "environ"), Not(HasSubstr(text)));
  }

  Program third(coming("third", secret));
  for (Program* one : {&run, &third}) {
    const Finished finished = one->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_THAT(finished.out + finished.err, Not(HasSubstr(text)));
  }
  EXPECT_THAT(values("third", "outer_contributed"), Contains(1));
  EXPECT_EQ(model("third"), model(within("run", 1)));
  EXPECT_THAT(files_with(text), ::testing::ElementsAre(secret));
  EXPECT_THAT(processes(), IsEmpty());
}

// Whoever coordinates by hand says so.
TEST_F(RunOnOneMachine, OneThatIsCoordinatedByHandMayHaveASecretToo) {
  const std::string secret = path("secret");
  Program order(
      {"coordinator", "--dir", path("ledger"), "--listen", kAnywhere, "--secret", secret});
  place_ = address_of(order);
  const Finished stranger = atoll(coming("mallory", ""));
  EXPECT_EQ(stranger.exit_code, 2) << stranger.err;
  std::vector<std::string> words =
      joining("lyon", "lyon", place_,
              {"--outer.islands=1", "--train.steps=20", "--island.secret=" + secret});
  const Finished lyon = atoll(words);
  EXPECT_EQ(lyon.exit_code, 0) << lyon.err;
  const Finished ended = order.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("every user of this machine")));
}

}  // namespace
}  // namespace atl
