#include "atoll/launch/offer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Offer, SaysWhatItWasMadeOf) {
  const Offer offer = {
      .name = "beta.example", .id = "0af3", .slots = 3, .agreement = {"x = 1", "y = a b"}};
  const Offer again = parse_offer(format_offer(offer));
  EXPECT_EQ(again.name, offer.name);
  EXPECT_EQ(again.id, offer.id);
  EXPECT_EQ(again.slots, 3);
  EXPECT_EQ(again.agreement, offer.agreement);
}

TEST(Offer, DamageIsNamed) {
  const auto problem = [](const std::string& text) -> std::string {
    try {
      parse_offer(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
      return error.what();
    }
    return "(none)";
  };
  EXPECT_THAT(problem(""), HasSubstr("the name ''"));
  EXPECT_THAT(problem("-oProxyCommand=x\n1\n1\n"), HasSubstr("the name '-oProxyCommand=x'"));
  EXPECT_THAT(problem(std::string(65, 'a') + "\n1\n1\n"), HasSubstr("the name 'aaa"));
  EXPECT_THAT(problem("beta\n\n1\n"), HasSubstr("an id of 0 bytes"));
  EXPECT_THAT(problem("beta\n" + std::string(65, 'a') + "\n1\n"), HasSubstr("an id of 65 bytes"));
  for (const char* slots : {"", "0", "-1", "1025", "1x", "1 1", "99999999999999999999"}) {
    EXPECT_THAT(problem(fmt::format("beta\n1\n{}\n", slots)),
                HasSubstr(fmt::format("for '{}' ranks", slots)));
  }
}

TEST(RankOrder, IsTheSameAtTheOtherEnd) {
  for (const RankOrder& order :
       {RankOrder{.number = 0, .backend = "gloo"},
        RankOrder{.number = 7, .joins = true, .generation = 3, .backend = "not-here_yet"},
        RankOrder{.rank = 2, .ranks = 4, .generation = 1, .backend = "tcp"}}) {
    EXPECT_EQ(parse_order(format_order(order)), order);
  }
}

TEST(RankOrder, WhatCannotBeIsNone) {
  // Number, joins, rank, ranks, generation, backend.
  EXPECT_TRUE(parse_order("start 1 0 0 0 0 tcp"));
  for (const char* line : {"start",
                           "start ",
                           "start tcp",
                           "start 1 0 0 0 0",
                           "start 1 0 0 0 tcp",
                           "start 1 0 0 0 0 0 tcp",
                           "start 1 0 0 0 0 tcp ",
                           "start 1 0 0 0 0  tcp",
                           "start -2 0 0 1 0 tcp",
                           "start -1 0 0 0 0 tcp",
                           "start -1 0 2 2 0 tcp",
                           "start -1 0 0 65537 0 tcp",
                           "start 1 2 0 0 0 tcp",
                           "start 1 0 0 0 -1 tcp",
                           "start 1 0 0 0 0 2",
                           "start 1 0 0 0 0 Tcp",
                           "start 1 0 0 0 0 --tcp",
                           "start 1 0 0 0 0 a-name-of-more-characters-than-32",
                           "start a 0 0 0 0 tcp",
                           "start 1 0 0 0 99999999999 tcp",
                           "Start 1 0 0 0 0 tcp"}) {
    EXPECT_FALSE(parse_order(line)) << line;
  }
}

TEST(RankOrder, BecomesFlags) {
  EXPECT_THAT(
      rank_flags({.number = 7, .joins = true, .generation = 3, .backend = "tcp"}, "tcp://h:1"),
      ElementsAre("--member=7", "--rendezvous=tcp://h:1", "--generation=3", "--joins",
                  "--backend=tcp"));
  EXPECT_THAT(rank_flags({.rank = 1, .ranks = 2}, "tcp://h:1"),
              ElementsAre("--rank=1", "--ranks=2", "--rendezvous=tcp://h:1", "--generation=0"));
}

TEST(EndLine, IsTheSameAtTheOtherEnd) {
  const auto end = parse_end(format_end({.exit_code = 3, .signal = 9}));
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, 3);
  EXPECT_EQ(end->signal, 9);
  for (const char* line : {"", "\x1e",
                           "\x1e"
                           "end",
                           "\x1e"
                           "end 1",
                           "\x1e"
                           "end 256 0",
                           "\x1e"
                           "end 0 65",
                           "\x1e"
                           "end -1 0",
                           "end 0 0"}) {
    EXPECT_FALSE(parse_end(line)) << line;
  }
}

}  // namespace
}  // namespace atl::launch
