#include "atoll/param_server/pauses.h"

#include <gtest/gtest.h>

namespace atl::param_server {
namespace {

using std::chrono::milliseconds;

TEST(Pauses, DoubleWhileAServerClosesTheLinkInPlaceOfAnAnswer) {
  Pauses pauses;
  Pauses::Time now = {};
  EXPECT_TRUE(pauses.opened(1, now));
  EXPECT_EQ(pauses.closed(1), 1);
  EXPECT_EQ(pauses.closed(1), 0) << "an attempt that did not come through";
  milliseconds wanted = Pauses::kFirst;
  for (int times = 2; times < 40; ++times) {
    EXPECT_FALSE(pauses.opened(1, now));
    EXPECT_TRUE(pauses.due(now + wanted - milliseconds(1)).empty());
    now += wanted;
    EXPECT_EQ(pauses.due(now), std::vector<ServerId>{1});
    EXPECT_TRUE(pauses.due(now).empty()) << "it was asked";
    EXPECT_EQ(pauses.closed(1), times);
    wanted = std::min(2 * wanted, Pauses::kLast);
  }
  EXPECT_EQ(wanted, Pauses::kLast);
}

TEST(Pauses, AreOverWithAnAnswer) {
  Pauses pauses;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(pauses.opened(1, {}));
    pauses.answered(1);
    EXPECT_EQ(pauses.closed(1), 0);
  }
}

TEST(Pauses, OfOneServerAreNoneOfAnother) {
  Pauses pauses;
  pauses.opened(1, {});
  pauses.closed(1);
  EXPECT_FALSE(pauses.opened(1, {}));
  EXPECT_TRUE(pauses.opened(2, {}));
  pauses.closed(1);
  EXPECT_TRUE(pauses.due(Pauses::Time() + Pauses::kLast).empty()) << "its link is gone";
}

}  // namespace
}  // namespace atl::param_server
