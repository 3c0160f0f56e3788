#include "atoll/island/client/state_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace atl::island {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Three fragments of others, each of one value.
class StateFetchTest : public ::testing::Test {
 protected:
  static StateHash hash(float value) { return hash_of(std::vector<float>{value}); }
  std::vector<StateHash> wanted() const {
    std::vector<StateHash> all;
    for (const float value : theirs_) all.push_back(hash(value));
    return all;
  }
  // What the others have by now; a value that is not theirs any more is gone.
  ExchangeResult attempt(const std::vector<StateHash>& wanted) {
    asked_.clear();
    return fetch_.fetch(
        wanted, own_,
        [this](int, const StateHash& one, std::span<float> values,
               StateHash& found) -> ExchangeResult {
          for (const float value : theirs_) {
            if (hash(value) != one) continue;
            asked_.push_back(value);
            values[0] = is_wrong_ ? value + 1 : value;
            found = hash_of(values);
            return {.is_done = true};
          }
          if (is_stalled_) asked_.push_back(0);
          return {.why = "gone", .is_gone = !is_stalled_};
        },
        stop_.get_token());
  }

  std::unique_ptr<OuterOptimizer> optimizer_ = make_outer_optimizer({.kind = "sgd", .momentum = 0});
  OuterState own_{{1, 1, 1}, *optimizer_};
  std::vector<float> theirs_ = {1, 2, 3};
  std::vector<float> asked_;
  bool is_wrong_ = false;
  bool is_stalled_ = false;
  std::stop_source stop_;
  StateFetch fetch_;
};

TEST_F(StateFetchTest, OnlyWhatHasChangedMeanwhileIsFetchedAgain) {
  const std::vector<StateHash> first = wanted();
  theirs_[1] = 20;  // an outer step while the first fragment comes
  EXPECT_FALSE(attempt(first).is_done);
  EXPECT_THAT(asked_, ElementsAre(1, 3)) << "what is still there is fetched all the same";
  theirs_[0] = 10;  // and another one
  EXPECT_TRUE(attempt(wanted()).is_done);
  EXPECT_THAT(asked_, ElementsAre(10, 20));
  EXPECT_THAT(fetch_.take(), UnorderedElementsAre(std::pair(0, std::vector<float>{10}),
                                                  std::pair(1, std::vector<float>{20}),
                                                  std::pair(2, std::vector<float>{3})));
  EXPECT_THAT(fetch_.take(), IsEmpty());
}

TEST_F(StateFetchTest, WhatDoesNotComeIsNotWaitedForOnceForEachFragment) {
  const std::vector<StateHash> first = wanted();
  theirs_[1] = 20;
  is_stalled_ = true;
  EXPECT_FALSE(attempt(first).is_done);
  EXPECT_THAT(asked_, ElementsAre(1, 0));
}

TEST_F(StateFetchTest, WhatTheIslandHasIsNotFetched) {
  for (int f = 0; f < 3; ++f)
    own_.replace(f, 1, {f == 2 ? 7.0F : theirs_[static_cast<std::size_t>(f)]});
  EXPECT_TRUE(attempt(wanted()).is_done);
  EXPECT_THAT(asked_, ElementsAre(3));
  EXPECT_EQ(fetch_.take().size(), 1U);
}

TEST_F(StateFetchTest, WhatHasAnotherHashIsNotKept) {
  is_wrong_ = true;
  const ExchangeResult result = attempt(wanted());
  EXPECT_FALSE(result.is_done);
  EXPECT_EQ(result.why, "what came is not the run's state");
  EXPECT_THAT(fetch_.take(), IsEmpty());
}

TEST_F(StateFetchTest, ACancelledFetchKeepsWhatItHas) {
  EXPECT_TRUE(attempt(wanted()).is_done);
  stop_.request_stop();
  EXPECT_FALSE(attempt(wanted()).is_done);
  EXPECT_EQ(fetch_.take().size(), 3U);
}

}  // namespace
}  // namespace atl::island
