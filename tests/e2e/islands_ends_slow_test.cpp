// How runs of islands end: with one model for whoever was there lately, or for a reason that all of
// them say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "islands_faults_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::Finished;
using e2e::Program;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class IslandEnds : public e2e::IslandFaults {
 protected:
  static bool says(const Program& program, const std::string& words) {
    return soon([&] { return program.errors().find(words) != std::string::npos; });
  }
  void kill(std::optional<Program>& coordinator) const {
    coordinator->send(SIGKILL);
    EXPECT_EQ(coordinator->wait().exit_code, 128 + SIGKILL);
  }
  std::string ledger() const { return path("ledger/ledger.db"); }
  // A copy over it, as people make one.
  void put_back() const {
    fs::copy_file(path("older.db"), ledger(), fs::copy_options::overwrite_existing);
  }
};

class OneThatIsAway : public IslandEnds, public ::testing::WithParamInterface<int> {};

// It is stopped, or killed when it has just come; then the coordinator is started again, and the
// others end the run before the island is started again.
TEST_P(OneThatIsAway, AtTheEndIsWaitedForAlsoAfterARestart) {
  const int signal = GetParam();
  std::optional<Program> order(std::in_place, coordinator(kAnywhere));
  const std::string place = address_of(*order);
  Program lyon(one_of(2, 300, "lyon", place));
  Program turin(one_of(2, 300, "turin", place));
  ASSERT_TRUE(took("lyon", 50));
  std::optional<Program> rome(std::in_place, one_of(2, 300, "rome", place));
  ASSERT_TRUE(says(*order, "rome joined as island"));
  if (signal == SIGTERM) {
    ASSERT_TRUE(took("rome", 1));
  }
  rome->send(signal);
  EXPECT_EQ(rome->wait().exit_code, 128 + signal);
  kill(order);
  order.emplace(coordinator(place));
  ASSERT_TRUE(says(*order, "all batches are committed; "));
  EXPECT_THAT(order->errors(), ContainsRegex("islands stay until .* has got to .*rome"));
  rome.emplace(one_of(2, 300, "rome", place));
  for (Program* island : {&lyon, &turin, &*rome}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
  }
  EXPECT_EQ(model("lyon"), model("turin"));
  EXPECT_EQ(model("lyon"), model("rome"));
  EXPECT_EQ(order->wait().exit_code, 0);
  expect_whole("ledger");
}

INSTANTIATE_TEST_SUITE_P(Islands, OneThatIsAway, ::testing::Values(SIGTERM, SIGKILL),
                         [](const auto& info) {
                           return info.param == SIGTERM ? "Stopped" : "Killed";
                         });

class AnOlderLedger : public IslandEnds, public ::testing::WithParamInterface<int> {};

// Its coordinator starts with a number that the islands have heard already, or with a lower one.
TEST_P(AnOlderLedger, ThatIsPutBackEndsTheIslandsWithTheReason) {
  std::optional<Program> order(std::in_place, coordinator(kAnywhere));
  const std::string place = address_of(*order);
  Program lyon(one_of(2, 100000, "lyon", place));
  Program turin(one_of(2, 100000, "turin", place));
  ASSERT_TRUE(took("lyon", 30));
  kill(order);
  fs::copy_file(ledger(), path("older.db"));
  for (int i = 0; i < GetParam(); ++i) {
    const std::size_t before = outer_steps("lyon");
    order.emplace(coordinator(place));
    ASSERT_TRUE(all_took_part("lyon", before + 1, 2));
    kill(order);
  }
  put_back();
  order.emplace(coordinator(place));
  for (Program* island : {&lyon, &turin}) {
    const Finished finished = island->wait();
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    EXPECT_THAT(finished.err, AllOf(HasSubstr("error: the coordinator "),
                                    AnyOf(HasSubstr("is of outer step"),
                                          HasSubstr("goes on from an older ledger"))));
  }
  order->send(SIGTERM);
  EXPECT_EQ(order->wait().exit_code, 128 + SIGTERM);
}

// Under a coordinator that lives: that one stops and says why, and so does the next.
TEST_F(IslandEnds, AnOlderLedgerThatIsPutBackUnderACoordinatorEndsAllWithTheReason) {
  std::optional<Program> order(std::in_place, coordinator(kAnywhere));
  const std::string place = address_of(*order);
  Program lyon(one_of(2, 100000, "lyon", place));
  Program turin(one_of(2, 100000, "turin", place));
  ASSERT_TRUE(took("lyon", 30));
  kill(order);
  fs::copy_file(ledger(), path("older.db"));
  const std::size_t before = outer_steps("lyon");
  order.emplace(coordinator(place));
  ASSERT_TRUE(all_took_part("lyon", before + 1, 2));
  put_back();
  const Finished stopped = order->wait();
  EXPECT_EQ(stopped.exit_code, 1);
  EXPECT_THAT(stopped.err, AllOf(HasSubstr("error: "), HasSubstr(ledger())));
  order.emplace(coordinator(place));
  for (Program* island : {&lyon, &turin}) {
    const Finished finished = island->wait();
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    EXPECT_THAT(finished.err, HasSubstr("error: the coordinator "));
  }
  order->send(SIGTERM);
  EXPECT_EQ(order->wait().exit_code, 128 + SIGTERM);
}

INSTANTIATE_TEST_SUITE_P(Islands, AnOlderLedger, ::testing::Values(1, 2));

}  // namespace
}  // namespace atl
