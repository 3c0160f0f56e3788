#include "atoll/island/coordinator/inbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::island {
namespace {

using Kind = Inbox::Arrival::Kind;

Inbox::Arrivals all_of(Inbox& inbox) {
  return inbox.take(std::chrono::steady_clock::now());
}

TEST(Inbox, GivesWhatCameInOrder) {
  Inbox inbox;
  inbox.opened(1, "lyon");
  EXPECT_TRUE(inbox.received(1, "a", true));
  EXPECT_TRUE(inbox.received(1, "b", true));
  inbox.closed(1, "gone");
  const Inbox::Arrivals all = all_of(inbox);
  ASSERT_EQ(all.size(), 4);
  EXPECT_EQ(all[0].text, "lyon");
  EXPECT_EQ(all[1].text, "a");
  EXPECT_EQ(all[2].text, "b");
  EXPECT_EQ(all[3].kind, Kind::kClosed);
  EXPECT_TRUE(all_of(inbox).empty());
}

TEST(Inbox, OneThatHasNotJoinedHasOneFrameWaiting) {
  Inbox inbox;
  EXPECT_TRUE(inbox.received(1, "join", false));
  EXPECT_FALSE(inbox.received(1, "more", false));
  EXPECT_TRUE(inbox.received(2, "join", false));
  EXPECT_EQ(all_of(inbox).size(), 2);
  EXPECT_TRUE(inbox.received(1, "more", false)) << "the one before was taken";
}

TEST(Inbox, AllThatHaveNotJoinedShareABound) {
  Inbox inbox;
  const std::string frame(std::size_t{4} << 20, 'x');
  const std::size_t fit = Inbox::kMaxUnjoinedBytes / frame.size();
  for (ConnectionId one = 1; one <= fit; ++one) EXPECT_TRUE(inbox.received(one, frame, false));
  EXPECT_FALSE(inbox.received(fit + 1, frame, false));
  EXPECT_TRUE(inbox.received(fit + 2, frame, true))
      << "those that have joined do not wait for them";
}

TEST(Inbox, OneThatHasJoinedHasABoundOfItsOwn) {
  Inbox inbox;
  const std::string frame(Inbox::kMaxJoinedBytes / 2, 'x');
  EXPECT_TRUE(inbox.received(1, frame, true));
  EXPECT_TRUE(inbox.received(1, frame, true));
  EXPECT_FALSE(inbox.received(1, "x", true));
  EXPECT_TRUE(inbox.received(2, frame, true));
}

}  // namespace
}  // namespace atl::island
