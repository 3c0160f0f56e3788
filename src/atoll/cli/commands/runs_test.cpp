#include "atoll/cli/commands/runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/data/testing.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

using data::testing::error_of;
using data::testing::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

island::LogContribution contribution(island::IslandId id, double weight, std::int64_t tokens,
                                     std::vector<island::BatchRange> consumed) {
  return {.participant = {.island = id, .weight = weight, .tokens = tokens},
          .consumed = std::move(consumed),
          .loss = 2 + static_cast<double>(id),
          .norm = 0.5};
}

island::LedgerContent ledger() {
  using namespace island;
  const std::vector<LogBody> bodies = {
      LogStarted{1},
      LogIsland{1, "lyon", "10.0.0.1:7001"},
      LogIsland{2, "an-island-with-a-name-of-many-letters", ""},
      LogLease{1, {{0, 10}}},
      LogLease{2, {{10, 20}}},
      LogReduce{
          0, 1, 0, {contribution(1, .25, 1000, {{0, 10}}), contribution(2, .75, 3000, {{10, 20}})}},
      LogReduce{0, 2, 0, {contribution(1, 1, 1000, {{0, 10}})}},
      LogCommit{0, 2, {0x0123456789abcdef, 7}},
      LogStarted{2},
      LogReturn{2, {{10, 12}, {13, 14}, {15, 16}, {17, 20}}},
      LogLease{1, {{10, 12}, {13, 14}, {15, 16}, {17, 20}, {20, 1234567}}},
      LogReduce{
          1,
          1,
          1,
          {contribution(1, 1, 1'000'000, {{10, 12}, {13, 14}, {15, 16}, {17, 20}, {20, 1234567}})}},
      LogCommit{1, 1, {0xfedcba9876543210, 8}},
      LogVoid{1, "lost with everyone"},
      LogReduce{1, 1, 1, {contribution(2, 1, 500, {{12, 13}})}},
  };
  LedgerContent content = {.identity = {"kjv", "1", "3f2a9c0122334455", "t", "d", "s"}};
  for (const LogBody& body : bodies) {
    const auto number = static_cast<double>(content.records.size());
    content.records.push_back({1763735469 + number, body});
  }
  return content;
}

TEST(Runs, ShowsRunIslandsSumsAndVerdict) {
  const std::string text = describe_run(ledger(), false);
  EXPECT_THAT(text, HasSubstr("run         kjv\n"));
  EXPECT_THAT(text, HasSubstr("model 3f2a9c0~,"));
  EXPECT_THAT(text, HasSubstr("15 records, 2025-11-21 14:31:09 to 2025-11-21 14:31:23 (UTC)"));
  EXPECT_THAT(text, HasSubstr("2 starts: fence 1 2025-11-21 14:31:09, fence 2 2025-11-21"));
  EXPECT_THAT(text, HasSubstr("1 committed, 1 attempt abandoned, 1 void; not finished"));
  EXPECT_THAT(text, HasSubstr("1,000; loss 3.0000 in the first outer step, 3.0000 in the last"));
  EXPECT_THAT(text, HasSubstr("10 consumed, 3 leased, 1,234,554 given back and free"));
  EXPECT_THAT(text, HasSubstr("     2  an-island-with-a-na~  calls out only"));
  EXPECT_THAT(text, HasSubstr("proved: each outer step"));
  EXPECT_THAT(text, Not(HasSubstr("frag")));
}

TEST(Runs, ShowsEveryAttemptWithItsMembers) {
  const std::string text = describe_run(ledger(), true);
  EXPECT_THAT(text, HasSubstr("     0     0    1  2025-11-21 14:31:14         4,000    3.7500  "
                              "abandoned\n"));
  EXPECT_THAT(text, HasSubstr("     0     0    2  2025-11-21 14:31:16         1,000    3.0000  "
                              "01234567~\n"
                              "        lyon                    100.0%         1,000    3.0000  "
                              "0-9\n"));
  EXPECT_THAT(text, HasSubstr("fedcba98~ void\n"));
  EXPECT_THAT(text, HasSubstr("10-11, 13, 15, 17-19 and 1 more\n"));
  EXPECT_THAT(text, HasSubstr("under way\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

TEST(Runs, FindingsOfTheAuditAreShown) {
  island::LedgerContent content = ledger();
  content.records.push_back({0, island::LogCommit{5, 1, {1, 1}}});
  EXPECT_THAT(
      describe_run(content, false),
      AllOf(HasSubstr("audit       1 finding\n"),
            HasSubstr("            record 16: outer step 5 is committed, and 1 is next\n")));
}

TEST(Runs, ALedgerThatHasJustBegunIsShown) {
  island::LedgerContent content = ledger();
  content.records.resize(1);
  EXPECT_THAT(describe_run(content, true), HasSubstr("0 committed, 0 attempts abandoned"));
}

TEST(Runs, JsonHasAllOfIt) {
  const auto json = nlohmann::json::parse(run_json(ledger(), true));
  EXPECT_EQ(json.at("model"), "3f2a9c0122334455");
  EXPECT_EQ(json.at("starts").size(), 2U);
  EXPECT_EQ(json.at("islands").at(1).at("name"), "an-island-with-a-name-of-many-letters");
  EXPECT_EQ(json.at("committed"), 1);
  const auto& attempts = json.at("outer_steps");
  ASSERT_EQ(attempts.size(), 4U);
  EXPECT_EQ(attempts.at(0).at("outcome"), "abandoned");
  EXPECT_FALSE(attempts.at(0).contains("hash"));
  EXPECT_EQ(attempts.at(1).at("hash"), "0123456789abcdef0000000000000007");
  EXPECT_EQ(attempts.at(2).at("outcome"), "void");
  EXPECT_EQ(attempts.at(0).at("members").at(1).at("weight"), .75);
  EXPECT_EQ(attempts.at(0).at("members").at(1).at("batches").at(0).at(1), 20);
  EXPECT_TRUE(json.at("audit").at("proved").get<bool>());
  EXPECT_EQ(json.at("audit").at("batches").at("high_water"), 1234567);
  EXPECT_FALSE(nlohmann::json::parse(run_json(ledger(), false)).contains("outer_steps"));
}

TEST(Runs, JsonHasTheNewestOfEachLink) {
  island::LedgerContent content = ledger();
  auto& reduce = std::get<island::LogReduce>(content.records[5].body);
  reduce.contributions[0].measured.links = {{2, 1e6, .05}};
  std::get<island::LogReduce>(content.records[6].body).contributions[0].measured = {
      .step_seconds = .25, .links = {{2, 2e6, .04}}};
  const auto json = nlohmann::json::parse(run_json(content, true, 2));
  ASSERT_EQ(json.at("links").size(), 1U);
  EXPECT_EQ(json.at("links").at(0),
            (nlohmann::json{
                {"from", 2}, {"to", 1}, {"bytes_per_second", 2e6}, {"round_trip_seconds", .04}}));
  EXPECT_EQ(json.at("outer_steps").size(), 2U) << "the newest two attempts";
  EXPECT_EQ(nlohmann::json::parse(run_json(content, true))
                .at("outer_steps")
                .at(1)
                .at("members")
                .at(0)
                .at("step_seconds"),
            .25);
}

TEST(Runs, TheLedgerIsFoundInTheRunAndInItsCoordinator) {
  const TemporaryDirectory directory;
  EXPECT_THAT(error_of([&] { find_ledger(directory.path()); }), HasSubstr("has no ledger.db"));
  write_file(directory / "metrics.jsonl", "");
  EXPECT_THAT(error_of([&] { find_ledger(directory.path()); }),
              HasSubstr("is a run without islands"));
  fs::create_directory(directory / "coordinator");
  const fs::path inner = directory / "coordinator" / "ledger.db";
  std::ofstream(inner) << "x";
  EXPECT_EQ(find_ledger(directory.path()), inner);
  EXPECT_EQ(find_ledger(directory / "coordinator"), inner);
  EXPECT_EQ(find_ledger(inner), inner);
}

}  // namespace
}  // namespace atl::cli
