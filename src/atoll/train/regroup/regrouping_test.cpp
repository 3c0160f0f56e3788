#include "atoll/train/regroup/regrouping.h"

#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::train {
namespace {

// Gives worlds of one rank.
class Alone : public Membership {
 public:
  bool joins() const override { return false; }
  std::unique_ptr<comm::World> next() override {
    ++given;
    return comm::open_self();
  }
  bool wants_change() override { return wanted; }

  int given = 0;
  bool wanted = false;
};

TEST(Regrouping, ARankSaysWhereItWasWhenItEntersTheNextWorld) {
  const TrainConfig config;
  Alone membership;
  Regrouping regrouping(config, membership);
  EXPECT_EQ(membership.given, 0) << "a rank that joins prepares first";
  const std::vector<Hello> first = regrouping.enter();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].old_rank, -1);
  EXPECT_FALSE(is_under_way(first));

  regrouping.leave("");
  const std::vector<Hello> second = regrouping.enter_next({.has_state = 1, .steps_taken = 7});
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(membership.given, 2);
  EXPECT_EQ(second[0].old_rank, 0);
  EXPECT_EQ(second[0].old_size, 1);
  EXPECT_EQ(second[0].steps_taken, 7);
  EXPECT_TRUE(is_under_way(second));
  EXPECT_EQ(regrouping.ranks().size(), 1);
}

TEST(Regrouping, OnlyAMembershipWantsOtherRanks) {
  const TrainConfig config;
  const Regrouping fixed(config);
  EXPECT_FALSE(fixed.is_possible());
  EXPECT_FALSE(fixed.is_wanted());
  Alone membership;
  const Regrouping moving(config, membership);
  EXPECT_TRUE(moving.is_possible());
  EXPECT_FALSE(moving.is_wanted());
  membership.wanted = true;
  EXPECT_TRUE(moving.is_wanted());
}

TEST(Regrouping, AStepThatOneRankHasMadeIsMadeByAll) {
  const std::vector<Hello> one_has_committed = {
      {.has_state = 1, .steps_taken = 4}, {.has_state = 1, .steps_taken = 4, .has_committed = 1}};
  EXPECT_EQ(steps_to_go_on_from(one_has_committed), 5);
  const std::vector<Hello> one_is_done = {{.has_state = 1, .steps_taken = 5},
                                          {.has_state = 1, .steps_taken = 4, .has_committed = 1}};
  EXPECT_EQ(steps_to_go_on_from(one_is_done), 5);
  const std::vector<Hello> none_has = {{.has_state = 1, .steps_taken = 4},
                                       {.has_state = 1, .steps_taken = 4}};
  EXPECT_EQ(steps_to_go_on_from(none_has), 4);
}

TEST(Regrouping, WhoIsNewHoldsNothing) {
  EXPECT_EQ(first_holder({{}, {.has_state = 1}, {.has_state = 1}}), 1);
  EXPECT_THROW(first_holder({{}, {}}), Error);
}

}  // namespace
}  // namespace atl::train
