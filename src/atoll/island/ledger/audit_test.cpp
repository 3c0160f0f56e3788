#include "atoll/island/ledger/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "atoll/island/ledger/audit_history.h"
#include "atoll/island/ledger/lease_table.h"

namespace atl::island {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ranges = std::vector<BatchRange>;

LogContribution contribution(IslandId island, double weight, Ranges consumed) {
  return {.participant = {.island = island, .weight = weight, .tokens = 100},
          .consumed = std::move(consumed),
          .loss = 2.0 + island,
          .norm = 1};
}

// Two islands, two outer steps, an attempt in vain, a return and what is still leased.
std::vector<LogBody> fine_log() {
  return {
      LogStarted{1},
      LogIsland{1, "lyon", "10.0.0.1:7001"},
      LogIsland{2, "oslo", ""},
      LogLease{1, {{0, 10}}},
      LogLease{2, {{10, 20}}},
      LogReduce{0, 1, 0, {contribution(1, .5, {{0, 10}}), contribution(2, .5, {{10, 20}})}},
      LogReduce{0, 2, 0, {contribution(1, 1, {{0, 10}})}},
      LogCommit{0, 2, {7, 7}},
      LogReturn{2, {{12, 20}}},
      LogStarted{2},
      LogIsland{2, "oslo", "10.0.0.2:7001"},
      LogLease{1, {{12, 22}}},
      LogReduce{1, 1, 0, {contribution(1, .25, {{12, 22}}), contribution(2, .75, {{10, 12}})}},
      LogCommit{1, 1, {8, 8}},
      LogLease{1, {{22, 32}}},
  };
}

std::vector<LogRecord> with_times(const std::vector<LogBody>& bodies) {
  std::vector<LogRecord> records;
  for (const LogBody& body : bodies) {
    records.push_back({1000 + static_cast<double>(records.size()), body});
  }
  return records;
}

AuditReport audit_of(const std::vector<LogBody>& bodies) {
  return audit(with_times(bodies));
}

TEST(Audit, AFineLogIsProved) {
  const AuditReport report = audit_of(fine_log());
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_TRUE(report.is_proved());
  EXPECT_EQ(report.num_committed, 2);
  EXPECT_EQ(report.consumed, 22);
  EXPECT_EQ(report.leased, 10);
  EXPECT_EQ(report.returned, 0);
  EXPECT_EQ(report.high_water, 32);
}

LogContribution gossiped(IslandId island, int exchange, Ranges consumed) {
  LogContribution one = contribution(island, .5, std::move(consumed));
  one.exchange = exchange;
  return one;
}

// Four islands; the exchange of 2 and 4 comes to nothing; then the mean of all.
std::vector<LogBody> gossip_log() {
  std::vector<LogBody> log = {LogStarted{1}};
  for (IslandId i = 1; i <= 4; ++i) log.push_back(LogIsland{i, "i" + std::to_string(i), ""});
  for (IslandId i = 1; i <= 4; ++i) log.push_back(LogLease{i, {{10 * i - 10, 10 * i}}});
  log.push_back(LogReduce{1,
                          1,
                          0,
                          {gossiped(1, 1, {{0, 10}}), gossiped(2, 2, {{10, 20}}),
                           gossiped(3, 1, {{20, 30}}), gossiped(4, 2, {{30, 40}})}});
  return log;
}

TEST(Audit, ExchangesOfPartnersAreInByThemselves) {
  std::vector<LogBody> log = gossip_log();
  std::get<LogReduce>(log.back()).outer_step = 0;
  auto& reduce = std::get<LogReduce>(log.back());
  // In outer step 0 neighbours are partners.
  for (const int i : {0, 1, 2, 3})
    reduce.contributions[static_cast<std::size_t>(i)].exchange = 1 + i / 2;
  log.push_back(LogCommit{
      .outer_step = 0, .attempt = 1, .hash = {7, 7}, .results = {{5, 5}, {5, 5}, {}, {}}});
  log.push_back(LogReduce{1, 1, 0, {gossiped(3, 1, {{20, 30}}), gossiped(4, 1, {{30, 40}})}});
  log.push_back(
      LogCommit{.outer_step = 1, .attempt = 1, .hash = {8, 8}, .results = {{6, 6}, {6, 6}}});
  const std::vector<LogBody> unfinished = log;
  log.push_back(LogReduce{2,
                          1,
                          0,
                          {contribution(1, .25, {}), contribution(2, .25, {}),
                           contribution(3, .25, {}), contribution(4, .25, {})}});
  log.push_back(LogCommit{2, 1, {9, 9}});
  log.push_back(LogFinished{});
  const AuditReport report = audit_of(log);
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_EQ(report.consumed, 40);
  EXPECT_EQ(report.leased, 0);
  log = unfinished;
  log.push_back(LogFinished{});
  EXPECT_THAT(audit_of(log).findings, ElementsAre(HasSubstr("without the mean of all states")));
}

TEST(Audit, FindsPartnersThatAreNotAndResultsThatDiffer) {
  std::vector<LogBody> log = gossip_log();
  std::get<LogReduce>(log.back()).outer_step = 0;
  log.push_back(LogCommit{
      .outer_step = 0, .attempt = 1, .hash = {7, 7}, .results = {{5, 5}, {6, 6}, {4, 4}, {6, 6}}});
  EXPECT_THAT(audit_of(log).findings,
              ElementsAre(HasSubstr("has other partners than the rule of partners gives"),
                          HasSubstr("partners of exchange 1 have different results")));
  log = gossip_log();
  std::get<LogReduce>(log.back()).outer_step = 0;
  log.push_back(LogCommit{.outer_step = 0, .attempt = 1, .hash = {7, 7}});
  EXPECT_THAT(audit_of(log).findings,
              ::testing::Contains(HasSubstr("with 0 results of 4 contributions")));
}

TEST(Audit, VoidBatchesAreFreeForOthers) {
  std::vector<LogBody> log = fine_log();
  log.push_back(LogVoid{1, "lost"});
  log.push_back(LogLease{2, {{10, 22}}});
  log.push_back(LogReduce{1, 1, 0, {contribution(2, 1, {{10, 22}})}});
  log.push_back(LogCommit{1, 1, {9, 9}});
  log.push_back(LogFinished{});
  const AuditReport report = audit_of(log);
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_EQ(report.num_committed, 2);
  EXPECT_EQ(report.num_void, 1);
  EXPECT_EQ(report.consumed, 22);
}

struct Fault {
  const char* name;
  std::size_t at;  // in fine_log()
  LogBody instead;
  const char* finding;
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

class AuditFinds : public ::testing::TestWithParam<Fault> {};

TEST_P(AuditFinds, WhatBreaksARule) {
  std::vector<LogBody> log = fine_log();
  const Fault& fault = GetParam();
  if (fault.at < log.size()) {
    log[fault.at] = fault.instead;
  } else {
    log.push_back(fault.instead);
  }
  const AuditReport report = audit_of(log);
  ASSERT_FALSE(report.is_proved());
  EXPECT_THAT(report.findings.front(), HasSubstr(fault.finding));
  EXPECT_THAT(report.findings.front(),
              ::testing::StartsWith("record " + std::to_string(fault.at + 1) + ": "));
}

constexpr std::size_t kAppended = 15;

INSTANTIATE_TEST_SUITE_P(
    Rules, AuditFinds,
    ::testing::Values(
        Fault{"NoStart", 0, LogFinished{}, "does not begin with the start"},
        Fault{"OldFence", 9, LogStarted{1}, "fence 1 after fence 1"},
        Fault{"NumberOfAnother", 2, LogIsland{1, "oslo", ""}, "island 1 is \"lyon\" and \"oslo\""},
        Fault{"TwoNumbers", 10, LogIsland{3, "oslo", ""}, "\"oslo\" is island 2 and island 3"},
        Fault{"Nobody", kAppended, LogIsland{0, "rome", ""}, "the number of nobody"},
        Fault{"LeaseToAStranger", 3, LogLease{5, {{0, 10}}}, "island 5 has not joined"},
        Fault{"LeasedTwice", 4, LogLease{2, {{9, 20}}}, "not free: 9-19"},
        Fault{"ConsumedIsLeased", kAppended, LogLease{2, {{3, 4}}}, "not free: 3"},
        Fault{"ReturnOfOthers", 8, LogReturn{2, {{9, 20}}}, "does not hold: 9-19"},
        Fault{"StepSkipped", 12, LogReduce{2, 1, 0, {contribution(1, 1, {})}},
              "attempt at outer step 2, and 1 is next"},
        Fault{"AttemptAgain", 6, LogReduce{0, 1, 0, {contribution(1, 1, {{0, 10}})}},
              "attempt 1 at outer step 0 after attempt 1"},
        Fault{"WeightsOfHalf", 6, LogReduce{0, 2, 0, {contribution(1, .5, {{0, 10}})}},
              "add up to 0.5"},
        Fault{"NegativeWeight", 5,
              LogReduce{0, 1, 0, {contribution(1, -1, {{0, 10}}), contribution(2, 2, {})}},
              "island 1 has weight -1"},
        Fault{"IslandTwice", 6,
              LogReduce{0, 2, 0, {contribution(1, .5, {{0, 10}}), contribution(1, .5, {})}},
              "island 1 comes after island 1"},
        Fault{"NobodyContributes", 6, LogReduce{0, 2, 0, {}}, "add up to 0"},
        Fault{"OthersBatches", 6, LogReduce{0, 2, 0, {contribution(1, 1, {{5, 15}})}},
              "does not hold: 5-14"},
        Fault{"OldAttemptCommitted", 7, LogCommit{0, 1, {7, 7}}, "is not the newest"},
        Fault{"StepTwice", kAppended, LogCommit{1, 1, {8, 8}}, "outer step 1 is committed, and 2"},
        Fault{"CommitOfNoAttempt", kAppended, LogCommit{2, 1, {8, 8}}, "is not the newest"},
        Fault{"NoHash", 7, LogCommit{0, 2, {}}, "without a hash"},
        Fault{"VoidOfTheFuture", kAppended, LogVoid{2, ""}, "from 2 on are void, and 2 are"}),
    [](const auto& info) { return info.param.name; });

TEST(Audit, NothingIsTrainedAfterTheEnd) {
  std::vector<LogBody> log = fine_log();
  log.insert(log.begin() + 11, LogFinished{});
  EXPECT_THAT(audit_of(log).findings,
              ElementsAre(HasSubstr("a lease after"), HasSubstr("an attempt after"),
                          HasSubstr("a commit after"), HasSubstr("a lease after")));
  log.insert(log.begin() + 12, LogStarted{3});  // made longer
  EXPECT_THAT(audit_of(log).findings, IsEmpty());
}

TEST(Audit, AHundredFindingsAreEnough) {
  std::vector<LogBody> log = fine_log();
  log.insert(log.end(), 150, LogStarted{1});
  const AuditReport report = audit_of(log);
  EXPECT_EQ(report.findings.size(), 100U);
  EXPECT_EQ(report.num_unsaid, 50U);
}

// What a coordinator might log: leases, attempts, commits, returns, voids, restarts.
class RandomRun {
 public:
  std::vector<LogBody> make() {
    for (IslandId island = 1; island <= kIslands; ++island) {
      log_.push_back(LogIsland{island, std::string(1, static_cast<char>('a' + island)), ""});
    }
    for (int i = *rc::gen::inRange(0, 30); i > 0; --i) step();
    return log_;
  }

 private:
  static constexpr IslandId kIslands = 3;

  void step() {
    const auto island = static_cast<IslandId>(*rc::gen::inRange<std::uint32_t>(1, kIslands + 1));
    switch (*rc::gen::inRange(0, 8)) {
      case 0: {
        const Ranges held = table_.held_by(island);
        RC_ASSERT(table_.give_back(island, held));
        log_.push_back(LogReturn{island, held});
        break;
      }
      case 1:
        log_.push_back(LogStarted{++fence_});
        break;
      case 2:
        if (!commits_.empty()) lose();
        break;
      case 3:
      case 4:
        log_.push_back(LogLease{island, table_.grant(island, *rc::gen::inRange(1, 9))});
        break;
      default:
        reduce(island);
    }
  }
  void lose() {
    const auto first = *rc::gen::inRange<std::size_t>(0, commits_.size());
    for (std::size_t k = first; k < commits_.size(); ++k) {
      for (const LogContribution& c : commits_[k].contributions) {
        RC_ASSERT(table_.unconsume(c.consumed));
      }
    }
    commits_.resize(first);
    log_.push_back(LogVoid{static_cast<std::int64_t>(first), "lost"});
  }
  void reduce(IslandId surely) {
    LogReduce reduce = {std::ssize(commits_), ++attempt_, 0, {}};
    for (IslandId member = 1; member <= kIslands; ++member) {
      if (member != surely && *rc::gen::arbitrary<bool>()) continue;
      reduce.contributions.push_back(contribution(member, 0, table_.held_by(member)));
    }
    for (LogContribution& c : reduce.contributions) {
      c.participant.weight = 1 / static_cast<double>(reduce.contributions.size());
    }
    log_.push_back(reduce);
    if (*rc::gen::inRange(0, 4) == 0) return;  // abandoned
    for (const LogContribution& c : reduce.contributions) {
      RC_ASSERT(table_.consume(c.participant.island, c.consumed));
    }
    log_.push_back(LogCommit{reduce.outer_step, attempt_, {attempt_, 1}});
    commits_.push_back(std::move(reduce));
  }

  std::vector<LogBody> log_ = {LogStarted{1}};
  LeaseTable table_{kEndless};
  std::vector<LogReduce> commits_;
  std::uint64_t fence_ = 1;
  std::uint32_t attempt_ = 0;
};

RC_GTEST_PROP(AuditProperty, RunsAreProvedUntilACommitIsLostOrDoubled, ()) {
  const std::vector<LogBody> log = RandomRun().make();
  const AuditReport report = audit_of(log);
  RC_ASSERT(report.findings == std::vector<std::string>());
  std::vector<std::ptrdiff_t> commits;
  for (std::ptrdiff_t i = 0; i < std::ssize(log); ++i) {
    if (std::holds_alternative<LogCommit>(log[static_cast<std::size_t>(i)])) commits.push_back(i);
  }
  if (commits.empty()) return;
  const std::ptrdiff_t at = *rc::gen::elementOf(commits);
  std::vector<LogBody> doubled = log;
  doubled.insert(doubled.begin() + at, log[static_cast<std::size_t>(at)]);
  RC_ASSERT(!audit_of(doubled).is_proved());
  // A commit after which no other came may be missing without a contradiction: then it was never
  // made, and one fewer is proved.
  std::vector<LogBody> lost = log;
  lost.erase(lost.begin() + at);
  const AuditReport without = audit_of(lost);
  RC_ASSERT(!without.is_proved() ||
            without.num_committed + without.num_void < report.num_committed + report.num_void);
}

TEST(History, TellsAttemptsIslandsAndStarts) {
  std::vector<LogBody> log = fine_log();
  log.push_back(LogReduce{2, 1, 0, {contribution(1, 1, {{22, 32}})}});
  const History history = tell_history(with_times(log));
  ASSERT_EQ(history.starts.size(), 2U);
  EXPECT_EQ(history.starts[1].fence, 2U);
  EXPECT_EQ(history.starts[1].unix_seconds, 1009);
  ASSERT_EQ(history.attempts.size(), 4U);
  using Outcome = OuterAttempt::Outcome;
  EXPECT_EQ(history.attempts[0].outcome, Outcome::kAbandoned);
  EXPECT_EQ(history.attempts[1].outcome, Outcome::kCommitted);
  EXPECT_EQ(history.attempts[1].begun, 1006);
  EXPECT_EQ(history.attempts[1].ended, 1007);
  EXPECT_EQ(history.attempts[2].hash, (StateHash{8, 8}));
  EXPECT_EQ(history.attempts[2].tokens(), 200);
  EXPECT_DOUBLE_EQ(history.attempts[2].loss(), 3.5);
  EXPECT_EQ(history.attempts[3].outcome, Outcome::kUnderWay);
  EXPECT_EQ(history.num_committed, 2);
  EXPECT_EQ(history.num_abandoned, 1);
  EXPECT_EQ(history.islands.at(1).outer_steps, 2);
  EXPECT_EQ(history.islands.at(2).tokens, 100);
  EXPECT_EQ(history.islands.at(2).address, "10.0.0.2:7001");
  EXPECT_EQ(history.islands.at(2).joined, 1002);
  EXPECT_FALSE(history.is_finished);

  log.push_back(LogVoid{1, "lost"});
  log.push_back(LogFinished{});
  const History after = tell_history(with_times(log));
  EXPECT_EQ(after.attempts[2].outcome, Outcome::kVoid);
  EXPECT_EQ(after.attempts[3].outcome, Outcome::kAbandoned);
  EXPECT_EQ(after.num_committed, 1);
  EXPECT_EQ(after.num_void, 1);
  EXPECT_EQ(after.islands.at(2).outer_steps, 0);
  EXPECT_TRUE(after.is_finished);
}

TEST(Batches, AreWrittenAsPeopleReadThem) {
  EXPECT_EQ(to_text(Ranges{}, 3), "none");
  EXPECT_EQ(to_text(Ranges{{0, 10}, {20, 20}, {21, 22}}, 3), "0-9, 21");
  EXPECT_EQ(to_text(Ranges{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, 2), "0, 2 and 2 more");
}

}  // namespace
}  // namespace atl::island
