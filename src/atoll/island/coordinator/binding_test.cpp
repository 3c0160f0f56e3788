// That what comes to a coordinator is bound to the connection that joined.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/island/coordinator/service_testing.h"

namespace atl::island {
namespace {

using ::testing::HasSubstr;
using testing::ScriptedIsland;
using wire::TransferEnd;

class Binding : public testing::ServiceTest {
 protected:
  Binding() : ServiceTest(GetParam()) {}

  static void expect_stranger(const wire::TransferResult& result) {
    EXPECT_EQ(result.end, TransferEnd::kRefused) << result.why;
    EXPECT_THAT(result.why, HasSubstr("has not joined the run here"));
  }
};

TEST_P(Binding, WhoHasNotJoinedPutsAndFetchesNothing) {
  reduce_in_a_star();
  const auto evil = hand("evil");
  for (const std::string& key : {relay_key(0, lyon_->id()), relay_key(7, 1), state_key({1, 1})}) {
    expect_stranger(evil->put(key));
    expect_stranger(evil->fetch(key));
    expect_stranger(evil->put(key, ""));
    expect_stranger(evil->put(key, std::string(1000, 'a').substr(0, 64)));
  }
  EXPECT_EQ(lyon_->put(relay_key(0, lyon_->id())).end, TransferEnd::kDone);
  EXPECT_EQ(oslo_->fetch(relay_key(0, lyon_->id())).end, TransferEnd::kDone);
}

TEST_P(Binding, AnIslandPutsItsOwnOnly) {
  reduce_in_a_star();
  const wire::TransferResult result = oslo_->put(relay_key(0, lyon_->id()));
  EXPECT_EQ(result.end, TransferEnd::kRefused);
  EXPECT_THAT(result.why, HasSubstr("is not for 2"));
  EXPECT_EQ(lyon_->put(relay_key(0, lyon_->id())).end, TransferEnd::kDone);
  EXPECT_EQ(oslo_->put(relay_key(0, oslo_->id())).end, TransferEnd::kDone);
}

// As a process does that has got hold of an island's certificate, or of its access token.
TEST_P(Binding, NeitherTheCertificateNorThePassOfAnIslandIsEnough) {
  reduce_in_a_star();
  const std::string key = relay_key(0, lyon_->id());
  const auto twin = hand("lyon");
  expect_stranger(twin->put(key));
  expect_stranger(twin->fetch(key));
  if (is_plain_) return;  // the token is all that there is
  const auto evil = hand("evil");
  expect_stranger(evil->put(key, lyon_->token()));
  expect_stranger(evil->fetch(key, lyon_->token()));
  expect_stranger(oslo_->put(key, lyon_->token()));
}

TEST_P(Binding, WhoHasGoneIsNobody) {
  reduce_in_a_star();
  const std::string token = oslo_->token();
  oslo_->say(Leave{.why = "enough"});
  oslo_->is_sent_away();
  expect_stranger(oslo_->fetch(relay_key(0, lyon_->id())));
}

// In its own name it would be nobody, and in another's it changes what that one has said.
TEST_P(Binding, WhoHasNotJoinedSaysNothing) {
  lyon_ = hand("lyon");
  oslo_ = hand("oslo");
  ASSERT_TRUE(lyon_->come("lyon"));
  ASSERT_TRUE(oslo_->come("oslo"));
  const Ready small = {.base_hash = {1, 1}, .encoded_bytes = 64, .chunk_bytes = 64};
  const auto forge = [&] {
    for (const IslandId sender : {kNobody, lyon_->id(), oslo_->id(), IslandId{77}}) {
      const auto evil = hand("evil");
      evil->say(small, {.fence = 1, .sender = sender});
      EXPECT_THAT(evil->is_sent_away(), HasSubstr("was not a Join"));
    }
  };
  forge();
  lyon_->say(lyon_->ready());
  oslo_->say(oslo_->ready());
  forge();
  ASSERT_TRUE(lyon_->hears<Reduce>() && oslo_->hears<Reduce>());
  forge();
  EXPECT_EQ(lyon_->put(relay_key(0, lyon_->id())).end, TransferEnd::kDone);
  EXPECT_EQ(oslo_->fetch(relay_key(0, lyon_->id())).end, TransferEnd::kDone);
  EXPECT_FALSE(lyon_->newest<AbandonReduce>());
}

TEST_P(Binding, AnIslandSpeaksAsItselfOnly) {
  reduce_in_a_star();
  const Stamp as_lyon = {.fence = lyon_->newest<Welcome>()->stamp.fence, .sender = lyon_->id()};
  oslo_->say(Leave{.why = "it is forged"}, as_lyon);
  EXPECT_THAT(oslo_->is_sent_away(), HasSubstr("island 2 sent a message as island 1"));
  ASSERT_TRUE(lyon_->hears<AbandonReduce>());
  EXPECT_FALSE(lyon_->newest<Finish>()) << "it was taken for its own Leave";
}

// Whole frames of another island, as somebody who has them would send them again.
TEST_P(Binding, FramesOfAnotherAreNotHeardAgain) {
  reduce_in_a_star();
  const Stamp stamp = {
      .fence = lyon_->newest<Welcome>()->stamp.fence, .sender = lyon_->id(), .sequence = 1000};
  const auto evil = hand("evil");
  evil->say_bytes(encode(MessageFromIsland{stamp, lyon_->join("lyon")}));
  const std::string why = evil->is_sent_away();
  EXPECT_THAT(why, HasSubstr(is_plain_ ? "is in the run already" : "the certificate is of evil"));
  expect_stranger(evil->put(relay_key(0, lyon_->id())));
  for (const FromIsland& body : {FromIsland(Leave{.why = "replayed"}), FromIsland(Prepared{}),
                                 FromIsland(ReduceFailed{.unreachable = {1, 2}, .why = "x"}),
                                 FromIsland(Heartbeat{}), FromIsland(Synced{})}) {
    const auto again = hand("evil");
    again->say_bytes(encode(MessageFromIsland{stamp, body}));
    EXPECT_THAT(again->is_sent_away(), HasSubstr("was not a Join"));
  }
  EXPECT_EQ(lyon_->put(relay_key(0, lyon_->id())).end, TransferEnd::kDone);
  EXPECT_FALSE(lyon_->newest<AbandonReduce>());
}

// One byte a chunk would cost the coordinator three bytes and a lock a byte; more than a fragment
// can be would cost its memory.
TEST_P(Binding, WhatAnIslandSaysOfSizesIsBoundedByTheRun) {
  lyon_ = hand("lyon");
  oslo_ = hand("oslo");
  ASSERT_TRUE(lyon_->come("lyon"));
  ASSERT_TRUE(oslo_->come("oslo"));
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  lyon_->say(lyon_->ready(kGiB, 1));
  ASSERT_TRUE(lyon_->hears<Resync>());
  EXPECT_THAT(lyon_->newest<Resync>()->body.why,
              HasSubstr("1073741824 bytes in chunks of 1, of a fragment whose state has 20000"));
}

TEST_P(Binding, WhoSaysAnotherSizeOfTheStateIsRefused) {
  lyon_ = hand("lyon");
  ASSERT_TRUE(lyon_->come("lyon"));
  oslo_ = hand("oslo");
  Join join = oslo_->join("oslo");
  join.plan.state_sizes = {std::uint64_t{1} << 35};
  oslo_->say(join);
  EXPECT_THAT(oslo_->is_sent_away(), HasSubstr("the state is 34359738368 bytes"));
}

TEST_P(Binding, WhoHasNotJoinedHasOneFrameHeard) {
  const auto evil = hand("evil");
  for (int i = 0; i < 100; ++i) evil->say_bytes(std::string(1 << 20, 'x'));
  evil->is_sent_away();
  lyon_ = hand("lyon");
  EXPECT_TRUE(lyon_->come("lyon"));
}

INSTANTIATE_TEST_SUITE_P(Coordinator, Binding, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "PlainText" : "Tls");
});

}  // namespace
}  // namespace atl::island
