// Islands under faults, by the program: whatever is killed, stopped or comes late, the ledger is
// whole at the end and all have one model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <optional>
#include <sstream>

#include "islands_faults_fixture.h"
#include "networks.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::Finished;
using e2e::IslandFaults;
using e2e::Program;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(IslandFaults, TheKilledCoordinatorGoesOnFromItsLedger) {
  std::optional<Program> first(std::in_place, coordinator(kAnywhere));
  const std::string place = address_of(*first);
  Program lyon(one_of(2, 300, "lyon", place));
  Program turin(one_of(2, 300, "turin", place));
  ASSERT_TRUE(took("lyon", 100));
  first->send(SIGKILL);
  EXPECT_EQ(first->wait().exit_code, 128 + SIGKILL);
  Program second(coordinator(place));
  const Finished one = lyon.wait();
  const Finished other = turin.wait();
  ASSERT_EQ(one.exit_code, 0) << one.err;
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(one.err, HasSubstr("lost the coordinator, which may come back"));
  EXPECT_THAT(one.err + other.err, Not(HasSubstr("refused this island")));
  const Finished ended = second.wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(model("lyon"), model("turin"));
  EXPECT_THAT(values("lyon", "outer_step"), SizeIs(Ge(30)));
  expect_every_outer_step("lyon");
  expect_every_outer_step("turin");
  expect_whole("ledger");
}

TEST_F(IslandFaults, ACoordinatorWithoutRoomOnItsDiskStopsAndIslandsWaitForIt) {
  const auto before = ::signal(SIGXFSZ, SIG_IGN);  // inherited: a full file is an error then
  std::optional<Program> first(std::in_place, coordinator(kAnywhere));
  const std::string place = address_of(*first);
  ::signal(SIGXFSZ, before);
  Program lyon(one_of(2, 200, "lyon", place));
  Program turin(one_of(2, 200, "turin", place));
  ASSERT_TRUE(took("lyon", 50));
  rlim_t largest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path("ledger"))) {
    largest = std::max<rlim_t>(largest, entry.file_size());
  }
  const rlimit full = {largest, largest};
  ASSERT_EQ(::prlimit(first->pid(), RLIMIT_FSIZE, &full, nullptr), 0);
  const Finished stopped = first->wait();
  EXPECT_EQ(stopped.exit_code, 1) << stopped.err;
  EXPECT_THAT(stopped.err, AllOf(HasSubstr("error: "), HasSubstr(path("ledger"))));
  Program second(coordinator(place));
  for (Program* island : {&lyon, &turin}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
  }
  EXPECT_EQ(second.wait().exit_code, 0);
  EXPECT_EQ(model("lyon"), model("turin"));
  expect_every_outer_step("lyon");
  expect_whole("ledger");
}

class ALateOne : public IslandFaults, public ::testing::WithParamInterface<const char*> {};

// From the others, or through the coordinator where all only call out.
TEST_P(ALateOne, GetsTheStateAndTakesPart) {
  Program order(coordinator(kAnywhere));
  const std::string place = address_of(order);
  const std::vector<std::string> more = {fmt::format("--island.listen={}", GetParam())};
  Program lyon(slow_one_of(2, 500, "lyon", place, more));
  Program turin(slow_one_of(2, 500, "turin", place, more));
  ASSERT_TRUE(soon([&] { return outer_steps("lyon") >= 2; }));
  Program rome(slow_one_of(2, 500, "rome", place, more));
  for (Program* island : {&lyon, &turin, &rome}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    if (island != &rome) continue;
    EXPECT_THAT(finished.err, Not(HasSubstr("islands are there"))) << "it had begun";
  }
  EXPECT_THAT(values("lyon", "outer_members"), Contains(3));
  EXPECT_THAT(values("rome", "outer_contributed"), Contains(1));
  EXPECT_EQ(model("lyon"), model("turin"));
  EXPECT_EQ(model("lyon"), model("rome"));
  EXPECT_EQ(order.wait().exit_code, 0);
  expect_every_outer_step("lyon");
  expect_whole("ledger");
}

INSTANTIATE_TEST_SUITE_P(Islands, ALateOne, ::testing::Values("127.0.0.1:0", ""));

// The coordinator, from which it is fetched, shows a certificate of its own.
TEST_F(IslandFaults, ALateOneThatOnlyCallsOutGetsTheStateOverTls) {
  const std::string authority = path("authority");
  const std::filesystem::path identities = root_.path / "authority/identities";
  ASSERT_EQ(atoll({"certs", "init", authority}).exit_code, 0);
  const std::vector<std::string> names = {"lyon", "turin", "rome"};
  for (const std::string& name : names) {
    ASSERT_EQ(atoll({"certs", "issue", authority, name}).exit_code, 0);
  }
  ASSERT_EQ(atoll({"certs", "issue", authority, "coordinator", "--host", "127.0.0.1"}).exit_code,
            0);
  Program order(coordinator(kAnywhere, {"--identity", (identities / "coordinator").string()}));
  const std::string place = address_of(order);
  const auto as = [&](const std::string& name) {
    return slow_one_of(2, 500, name, place,
                       {"--island.listen=", "--island.identity=" + (identities / name).string()});
  };
  Program lyon(as("lyon"));
  Program turin(as("turin"));
  ASSERT_TRUE(soon([&] { return outer_steps("lyon") >= 2; }));
  Program rome(as("rome"));
  for (Program* island : {&lyon, &turin, &rome}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_THAT(finished.err, Not(HasSubstr("could not be put")));
  }
  EXPECT_THAT(values("lyon", "outer_members"), Contains(3));
  EXPECT_THAT(values("rome", "outer_contributed"), Contains(1));
  EXPECT_EQ(model("lyon"), model("rome"));
  EXPECT_EQ(order.wait().exit_code, 0);
  expect_whole("ledger");
}

// Its heartbeats wait for seconds behind what it exchanges; were it left out for that, the state
// that it then needs would take several rounds.
TEST_F(IslandFaults, OneBehindALinkWithALongQueueTakesPart) {
  grace_s_ = "30";
  const e2e::Networks networks;
  if (!networks.works() || !networks.limit(400, 256 << 10)) {
    GTEST_SKIP() << "this needs root, `ip` and `tc`";
  }
  const std::string authority = path("authority");
  ASSERT_EQ(atoll({"certs", "init", authority}).exit_code, 0);
  const auto certified = [&](const std::string& name, const char* host) {
    EXPECT_EQ(atoll({"certs", "issue", authority, name, "--host", host}).exit_code, 0);
    return (root_.path / "authority/identities" / name).string();
  };
  networks.enter_here();
  const std::string anywhere = fmt::format("{}:0", e2e::Networks::kHere);
  Program order(
      coordinator(anywhere, {"--identity", certified("coordinator", e2e::Networks::kHere)}));
  const std::string place = address_of(order);
  const auto at = [&](const std::string& name, const char* host) {
    return one_of(2, 50, name, place,
                  {fmt::format("--island.listen={}:0", host), "--model.hidden_size=64",
                   "--train.context=1024", "--outer.codec=bf16",
                   "--island.identity=" + certified(name, host)});
  };
  Program lyon(at("lyon", e2e::Networks::kHere));
  networks.enter_there();
  Program turin(at("turin", e2e::Networks::kThere));
  for (Program* island : {&lyon, &turin}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
  }
  const std::vector<double> members = values("lyon", "outer_members");
  EXPECT_THAT(members, SizeIs(Ge(5U)));
  EXPECT_GE(std::count(members.begin(), members.end(), 2), 4) << order.errors();
  EXPECT_EQ(model("lyon"), model("turin"));
  EXPECT_EQ(order.wait().exit_code, 0);
  expect_whole("ledger");
}

TEST_F(IslandFaults, OneThatLeavesGivesBackWhatItHas) {
  Program order(coordinator(kAnywhere));
  const std::string place = address_of(order);
  Program lyon(one_of(3, 150, "lyon", place));
  Program turin(one_of(3, 150, "turin", place));
  Program rome(one_of(3, 150, "rome", place));
  ASSERT_TRUE(took("rome", 45));
  rome.send(SIGTERM);
  const Finished left = rome.wait();
  EXPECT_EQ(left.exit_code, 128 + SIGTERM) << left.err;
  // Others end the run without it, and then wait for it: it may be started again.
  ASSERT_TRUE(soon([&] { return order.errors().find("all batches are") != std::string::npos; }));
  EXPECT_THAT(order.errors(), ::testing::ContainsRegex("islands stay until .* has got to .*rome"));
  Program again(one_of(3, 150, "rome", place));
  for (Program* island : {&lyon, &turin, &again}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
  }
  EXPECT_EQ(model("lyon"), model("turin"));
  EXPECT_EQ(model("lyon"), model("rome"));
  EXPECT_EQ(order.wait().exit_code, 0);
  expect_every_outer_step("lyon");
  expect_whole("ledger");
}

TEST_F(IslandFaults, OneThatIsStoppedForFiveSecondsComesBack) {
  Program order(coordinator(kAnywhere));
  const std::string place = address_of(order);
  Program lyon(slow_one_of(2, 3000, "lyon", place));
  Program turin(slow_one_of(2, 3000, "turin", place));
  ASSERT_TRUE(took("lyon", 50));
  turin.send(SIGSTOP);
  pause(std::chrono::seconds(5));
  turin.send(SIGCONT);
  const Finished one = lyon.wait();
  const Finished other = turin.wait();
  ASSERT_EQ(one.exit_code, 0) << one.err;
  ASSERT_EQ(other.exit_code, 0) << other.err;
  const auto members = values("lyon", "outer_members");
  const auto alone = std::find(members.begin(), members.end(), 1);
  EXPECT_NE(alone, members.end());
  EXPECT_NE(std::find(alone, members.end(), 2), members.end());
  EXPECT_EQ(model("lyon"), model("turin"));
  EXPECT_EQ(order.wait().exit_code, 0);
  expect_every_outer_step("lyon");
  expect_whole("ledger");
}

TEST_F(IslandFaults, OneThatIsStoppedUntilTheOthersAreDoneGetsTheirModel) {
  Program order(coordinator(kAnywhere));
  const std::string place = address_of(order);
  Program lyon(slow_one_of(2, 200, "lyon", place));
  Program turin(slow_one_of(2, 200, "turin", place));
  // What is left takes less than the half minute after which one is out, on a busy machine too.
  ASSERT_TRUE(took("lyon", 100));
  turin.send(SIGSTOP);
  ASSERT_TRUE(soon([&] { return order.errors().find("all batches are") != std::string::npos; }));
  EXPECT_THAT(order.errors(), ::testing::ContainsRegex("islands stay until .* has got to .*turin"));
  turin.send(SIGCONT);
  for (Program* island : {&lyon, &turin}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
  }
  EXPECT_EQ(model("lyon"), model("turin"));
  EXPECT_EQ(order.wait().exit_code, 0);
  expect_every_outer_step("lyon");
  expect_whole("ledger");
}

TEST_F(IslandFaults, OnlyThoseWithAGoodCertificateTakePart) {
  const auto certs = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "certs");
    const Finished finished = atoll(words);
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
  };
  certs({"init", path("authority")});
  certs({"init", path("another")});
  certs({"issue", path("authority"), "coordinator", "--host", "127.0.0.1"});
  for (const char* name : {"lyon", "turin", "rome", "bern"}) {
    certs({"issue", path("authority"), name});
  }
  certs({"issue", path("another"), "oslo"});
  const std::filesystem::path identities = root_.path / "authority/identities";
  std::filesystem::rename(identities / "bern", path("bern-identity"));
  certs({"revoke", path("authority"), "bern"});
  std::filesystem::copy(root_.path / "authority/revoked.pem",
                        identities / "coordinator" / "revoked.pem",
                        std::filesystem::copy_options::overwrite_existing);

  Program order(coordinator(kAnywhere, {"--identity", (identities / "coordinator").string()}));
  const std::string place = address_of(order);
  const auto as = [&](const std::string& name, const std::filesystem::path& identity) {
    return slow_one_of(2, 500, name, place, {"--island.identity=" + identity.string()});
  };
  Program lyon(as("lyon", identities / "lyon"));
  const std::vector<std::pair<std::vector<std::string>, std::string>> strangers = {
      {as("oslo", root_.path / "another/identities/oslo"), "self-signed certificate"},
      {as("bern", path("bern-identity")), "of bern was revoked"},
      {one_of(2, 400, "pisa", place), "speaks TLS, and this side has no identity"},
      {as("genoa", identities / "turin"), "the certificate is of turin, not of genoa"},
  };
  for (const auto& [words, why] : strangers) {
    const Finished refused = atoll(words);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("error: "), HasSubstr(why)));
  }
  Program turin(as("turin", identities / "turin"));
  ASSERT_TRUE(soon([&] { return outer_steps("lyon") >= 2; }));
  Program rome(as("rome", identities / "rome"));
  for (Program* island : {&lyon, &turin, &rome}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    // A fetch may come too late for an outer step; one that TLS refuses would be a defect.
    std::istringstream lines(finished.err);
    for (std::string line; std::getline(lines, line);) {
      if (line.find("could not be fetched, and") == line.npos) continue;
      EXPECT_THAT(line, HasSubstr(" is not here"));
    }
  }
  EXPECT_EQ(model("lyon"), model("turin"));
  EXPECT_EQ(model("lyon"), model("rome"));
  EXPECT_EQ(order.wait().exit_code, 0);
  expect_whole("ledger");
}

// How islands communicate, by the settings that say it. Gossip needs three for an exchange without
// the victim.
struct Communication {
  std::string name;
  std::vector<std::string> settings;
  int islands = 2;
  bool waits = true;  // outer steps have all islands, unless one is away
};

// A run is as long as a few kills need. Many kills are made in as many runs as they take, so that
// none trains on for long after its last kill.
class KilledAtRandom : public IslandFaults, public ::testing::WithParamInterface<Communication> {
 protected:
  static constexpr int kSteps = 1800;     // of each island
  static constexpr int kLastSteps = 400;  // no kill is so near to the end of a run

  // A killed island is known to be lost at once: this is for one that a busy machine makes slow.
  KilledAtRandom() { grace_s_ = GetParam().waits ? "10" : "0"; }
  bool takes_part(const std::string& run, std::size_t after, int islands) const {
    return GetParam().waits ? all_took_part(run, after, islands) : contributed(run, after);
  }
  bool ends_soon(const std::string& ledger, int islands) const {
    return committed(ledger) > std::int64_t{kSteps - kLastSteps} * islands;
  }
  /// Trains a run in which islands are killed; how many kills there were, `most` or fewer.
  void kill_islands(const std::string& name, int most, int& kills);
  /// The same with its coordinator.
  void kill_coordinators(int most, int& kills);
};

void KilledAtRandom::kill_islands(const std::string& name, int most, int& kills) {
  const int islands = GetParam().islands;
  std::vector<std::string> settings = {"--model.hidden_size=64", "--train.context=128",
                                       "--checkpoint.every=20",
                                       fmt::format("--island-restarts={}", most)};
  const std::vector<std::string>& more = GetParam().settings;
  settings.insert(settings.end(), more.begin(), more.end());
  Program run(islanded(name, islands, kSteps, settings));
  std::vector<std::size_t> seen(islands + 1);
  for (kills = 0; kills < most; ++kills) {
    bool take_part = true;
    for (int number = 1; take_part && number <= islands; ++number) {
      take_part = takes_part(within(name, number), seen[number], islands);
    }
    // Where an island is slow to come back the other may have got there alone.
    if (ends_soon(name + "/coordinator", islands)) break;
    ASSERT_TRUE(take_part) << "before kill " << kills << '\n' << run.errors();
    pause(std::chrono::milliseconds(random_() % 400));
    const pid_t victim = island(1 + static_cast<int>(random_() % islands));
    ASSERT_NE(victim, 0) << "before kill " << kills;
    ::kill(victim, SIGKILL);
    for (int number = 1; number <= islands; ++number) {
      seen[number] = outer_steps(within(name, number));
    }
  }
  const Finished finished = run.wait();
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  for (int number = 2; number <= islands; ++number) {
    EXPECT_EQ(model(within(name, 1)), model(within(name, number)));
  }
  EXPECT_THAT(processes(), IsEmpty());
  expect_whole(name + "/coordinator");
}

TEST_P(KilledAtRandom, IslandsEndWithOneModel) {
  const int all = num_kills();
  for (int run = 1, done = 0, kills = 0; done < all; ++run, done += kills) {
    ASSERT_NO_FATAL_FAILURE(kill_islands(fmt::format("run-{}", run), all - done, kills));
    ASSERT_GT(kills, 0) << "run " << run << " ended before it could be disturbed";
  }
}

void KilledAtRandom::kill_coordinators(int most, int& kills) {
  const std::vector<std::string>& more = GetParam().settings;
  for (const char* old : {"ledger", "lyon", "turin"}) std::filesystem::remove_all(path(old));
  std::optional<Program> order(std::in_place, coordinator(kAnywhere));
  const std::string place = address_of(*order);
  Program lyon(one_of(2, kSteps, "lyon", place, more));
  Program turin(one_of(2, kSteps, "turin", place, more));
  std::size_t seen = 0;
  for (kills = 0; kills < most; ++kills) {
    const bool take_part = takes_part("lyon", seen, 2);
    if (ends_soon("ledger", 2)) break;
    ASSERT_TRUE(take_part) << "before kill " << kills << '\n' << lyon.errors();
    pause(std::chrono::milliseconds(random_() % 200));
    order->send(SIGKILL);
    order->wait();
    seen = outer_steps("lyon");
    order.emplace(coordinator(place));
  }
  for (Program* island : {&lyon, &turin}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
  }
  const Finished ended = order->wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(model("lyon"), model("turin"));
  if (more.empty()) {
    EXPECT_THAT(values("lyon", "outer_step"), SizeIs(Ge(kSteps / 10)));
    expect_every_outer_step("lyon");
    expect_every_outer_step("turin");
  }
  expect_outer_steps_once("lyon");
  expect_outer_steps_once("turin");
  expect_whole("ledger");
}

TEST_P(KilledAtRandom, ACoordinatorLosesNothing) {
  const int all = num_kills();
  for (int done = 0, kills = 0; done < all; done += kills) {
    ASSERT_NO_FATAL_FAILURE(kill_coordinators(all - done, kills));
    ASSERT_GT(kills, 0) << "the run ended before it could be disturbed";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Islands, KilledAtRandom,
    ::testing::Values(
        Communication{"diloco", {}}, Communication{"gossip", {"--outer.algorithm=gossip"}, 3},
        Communication{"async", {"--outer.algorithm=async"}, 2, false},
        Communication{"qsr", {"--outer.policy=qsr", "--outer.max_inner_steps=40"}},
        Communication{"adacomm", {"--outer.policy=adacomm", "--outer.max_inner_steps=40"}},
        Communication{
            "budget",
            {"--outer.policy=budget", "--outer.round_mb=0.2", "--outer.max_inner_steps=40"}},
        Communication{"auto", {"--outer.policy=auto", "--outer.max_inner_steps=40"}}),
    [](const auto& tested) { return tested.param.name; });

TEST_F(IslandFaults, IslandsOfTwoRanksTrainOneModel) {
  Program order(coordinator(kAnywhere));
  const std::string place = address_of(order);
  const auto of_two = [&](const std::string& name) {
    return ranked(name, {"-n", "2", "--backend=threads", "--island.coordinator=" + place,
                         "--island.name=" + name, "--outer.islands=2", "--outer.inner_steps=10",
                         "--log.tensorboard=false", "--comm.timeout_s=3"});
  };
  Program lyon(of_two("lyon"));
  // Ranks that do not lead wait for the lead, which waits for another island: longer than ranks may
  // be silent.
  pause(std::chrono::seconds(5));
  Program turin(of_two("turin"));
  for (Program* island : {&lyon, &turin}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
  }
  EXPECT_EQ(model("lyon"), model("turin"));
  EXPECT_EQ(order.wait().exit_code, 0);
  expect_whole("ledger");
}

TEST_F(IslandFaults, OneWithoutACoordinatorSaysSoAndTriesAgain) {
  std::string place;
  {
    Program order(coordinator(kAnywhere));
    place = address_of(order);
  }
  Program lyon(one_of(1, 20, "lyon", place));
  const std::string kWords = "no coordinator at " + place + " yet: ";
  ASSERT_TRUE(soon([&] { return lyon.errors().find(kWords) != std::string::npos; }));
  lyon.send(SIGINT);
  const Finished stopped = lyon.wait();
  EXPECT_EQ(stopped.exit_code, 128 + SIGINT) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("it is tried again for 600 s"));
  Program again(one_of(1, 20, "lyon", place));
  ASSERT_TRUE(soon([&] { return again.errors().find(kWords) != std::string::npos; }));
  Program order(coordinator(place));
  const Finished finished = again.wait();
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.err.find(kWords), finished.err.rfind(kWords)) << finished.err;
  EXPECT_EQ(order.wait().exit_code, 0);
}

}  // namespace
}  // namespace atl
