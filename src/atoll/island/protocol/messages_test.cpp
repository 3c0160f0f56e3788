#include "atoll/island/protocol/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/island/protocol/messages_generators.h"

namespace atl::island {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

RC_GTEST_PROP(MessagesProperty, FromIslandsComeBackAsTheyWere, ()) {
  const MessageFromIsland message = {testing::any_stamp(), testing::any_from_island()};
  RC_ASSERT(decode_from_island(encode(message)) == message);
}

RC_GTEST_PROP(MessagesProperty, ToIslandsComeBackAsTheyWere, ()) {
  const MessageToIsland message = {testing::any_stamp(), testing::any_to_island()};
  RC_ASSERT(decode_to_island(encode(message)) == message);
}

// A cut may fall between two fields, whose absence must then be noticed.
RC_GTEST_PROP(MessagesProperty, APieceOfAMessageIsNone, ()) {
  const MessageFromIsland message = {testing::any_stamp(), testing::any_from_island()};
  const std::string bytes = encode(message);
  const auto size = *rc::gen::inRange<std::size_t>(0, bytes.size());
  try {
    const MessageFromIsland piece = decode_from_island(std::string_view(bytes).substr(0, size));
    RC_FAIL("taken for a message");
  } catch (const Error& error) {
    RC_ASSERT(error.kind() == ErrorKind::kDamaged);
  }
}

RC_GTEST_PROP(MessagesProperty, ChangedBytesAreAMessageOrRefused, ()) {
  const MessageToIsland message = {testing::any_stamp(), testing::any_to_island()};
  std::string bytes = encode(message);
  for (int i = *rc::gen::inRange(1, 4); i > 0; --i) {
    bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
  }
  try {
    const MessageToIsland other = decode_to_island(bytes);
    RC_ASSERT(decode_to_island(encode(other)) == other);
  } catch (const Error& error) {
    RC_ASSERT(error.kind() == ErrorKind::kDamaged);
  }
}

template <typename Body>
std::string refusal(const Body& body) {
  try {
    if constexpr (std::is_constructible_v<FromIsland, Body>) {
      encode(MessageFromIsland{{}, body});
    } else {
      encode(MessageToIsland{{}, body});
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

Ready ready(double norm, bool is_finite) {
  return {.norm = norm, .is_finite = is_finite};
}

Reduce reduce(const Participant& participant) {
  return {.participants = {{.island = 1}, participant}};
}

TEST(Messages, RefusalNamesTheField) {
  EXPECT_THAT(refusal(Join{.name = "a b"}), HasSubstr("join.name is \"a b\""));
  EXPECT_THAT(refusal(Join{.name = ""}), HasSubstr("join.name"));
  EXPECT_THAT(refusal(Join{.name = ".."}), HasSubstr("join.name"));
  EXPECT_THAT(refusal(Join{.name = std::string(129, 'x')}), HasSubstr("join.name"));
  EXPECT_THAT(refusal(Join{.name = "a", .outer_step = -2}), HasSubstr("join.outer_step is -2"));
  EXPECT_THAT(refusal(Join{.name = "a", .identity = {.run = "x\ny"}}),
              HasSubstr("join.identity.run has characters"));
  EXPECT_THAT(refusal(Join{.name = "a", .identity = {.model = std::string(257, 'x')}}),
              HasSubstr("join.identity.model has 257 bytes"));
  EXPECT_THAT(refusal(Join{.name = "a", .identity = {.settings = std::string(65537, 'x')}}),
              HasSubstr("join.identity.settings has 65537 bytes"));
  EXPECT_THAT(refusal(Join{.name = "a", .plan = {.num_fragments = 4097}}),
              HasSubstr("join.plan.num_fragments is 4097"));
  EXPECT_THAT(refusal(Join{.name = "a", .address = "host name:1"}), HasSubstr("join.address"));
  EXPECT_THAT(refusal(Join{.name = "a", .holds = {{5, 9}, {3, 2}}}),
              HasSubstr("join.holds[1] goes from 3 to 2"));
  EXPECT_THAT(refusal(Join{.name = "a", .holds = {{-1, 2}}}),
              HasSubstr("join.holds[0].begin is -1"));
  EXPECT_THAT(refusal(Synced{.outer_step = -1}), HasSubstr("synced.outer_step is -1"));
  EXPECT_THAT(refusal(Heartbeat{.batches_per_second = kNan}),
              HasSubstr("heartbeat.batches_per_second is nan"));
  EXPECT_THAT(refusal(Heartbeat{.sent = INFINITY}), HasSubstr("heartbeat.sent is inf"));
  EXPECT_THAT(refusal(Heartbeat{.heard = {0}}), HasSubstr("heartbeat.heard[0] is 0"));
  EXPECT_THAT(refusal(ready(-1, true)), HasSubstr("ready.norm is -1"));
  EXPECT_THAT(refusal(ready(INFINITY, true)), HasSubstr("ready.norm is inf"));
  EXPECT_THAT(refusal(ReduceFailed{.unreachable = {3, 0}}),
              HasSubstr("reduce_failed.unreachable[1] is 0"));
  EXPECT_THAT(refusal(reduce({.island = 2, .weight = 1.5})),
              HasSubstr("reduce.participants[1].weight is 1.5"));
  EXPECT_THAT(refusal(reduce({.island = 0})), HasSubstr("reduce.participants[1].island is 0"));
  EXPECT_THAT(refusal(Reduce{.fragment = 4096}), HasSubstr("reduce.fragment is 4096"));
  EXPECT_THAT(refusal(View{{{.island = 1, .name = "a", .state = "dead"}}}),
              HasSubstr("view.members[0].state is \"dead\""));
}

TEST(Messages, ListsHaveLimits) {
  EXPECT_EQ(refusal(Lease{.ranges = std::vector<BatchRange>(10'000)}), "");
  EXPECT_THAT(refusal(Lease{.ranges = std::vector<BatchRange>(10'001)}),
              HasSubstr("lease.ranges has 10001 items"));
  EXPECT_THAT(refusal(Synced{.hashes = std::vector<StateHash>(4097)}),
              HasSubstr("synced.hashes has 4097 items"));
  EXPECT_THAT(refusal(Welcome{.island = 1, .sources = std::vector<Source>(4097)}),
              HasSubstr("welcome.sources has 4097 items"));
  EXPECT_THROW(decode_to_island(std::string((std::size_t{2} << 20) + 1, '\0')), Error);
}

TEST(Messages, TheLargestViewFits) {
  const View::MemberInfo member = {.island = ~IslandId{0},
                                   .name = std::string(128, 'n'),
                                   .address = std::string(256, 'a'),
                                   .state = "joining"};
  const MessageToIsland message = {{}, View{std::vector<View::MemberInfo>(4096, member)}};
  EXPECT_EQ(decode_to_island(encode(message)), message);
}

// An island whose pseudo-gradient is NaN must be able to say so.
TEST(Messages, AReadyThatIsNotFiniteMayShowIt) {
  const auto message = decode_from_island(encode(MessageFromIsland{{}, ready(kNan, false)}));
  EXPECT_TRUE(std::isnan(std::get<Ready>(message.body).norm));
}

TEST(Messages, LongReasonsAreCut) {
  const auto message =
      decode_to_island(encode(MessageToIsland{{}, Dropped{std::string(5000, 'w')}}));
  EXPECT_EQ(std::get<Dropped>(message.body).why, std::string(4093, 'w') + "...");
}

std::string damage(std::string_view bytes) {
  try {
    decode_from_island(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
    return error.what();
  }
  return "";
}

TEST(Messages, WhatIsMissingOrUnknownIsNamed) {
  using namespace std::string_literals;
  const std::string leave = encode(MessageFromIsland{{}, Leave{"x"}});
  // Field 1, the stamp, in a message: 0x0A, its length, its bytes.
  const auto stamp_bytes = static_cast<std::size_t>(leave[1]) + 2;
  const std::string stamp = leave.substr(0, stamp_bytes);
  EXPECT_THAT(damage(""), HasSubstr("stamp is missing"));
  EXPECT_THAT(damage(leave.substr(stamp_bytes)), HasSubstr("stamp is missing"));
  EXPECT_THAT(damage(stamp), HasSubstr("no known body"));
  EXPECT_THAT(damage("\x0A\x00"s), HasSubstr("stamp.fence is missing"));
  EXPECT_THAT(damage(stamp + "\x42\x00"s), HasSubstr("leave.why is missing"));
  EXPECT_THAT(damage(stamp + "\x22\x02\x08\x01"s),
              HasSubstr("heartbeat.batches_per_second is missing"));
  EXPECT_THAT(damage(leave + "\x98\x06\x01"s), HasSubstr("a field that is not known"));
  EXPECT_THAT(damage(leave + "\x0A"s), HasSubstr("is not one of atoll's"));
}

TEST(Messages, IslandNamesAreThoseOfDirectories) {
  EXPECT_NO_THROW(check_island_name("lyon-2.example_x"));
  for (const char* name : {"", ".", "..", "a/b", "a b", "\xC3\xA9", "a\n"}) {
    EXPECT_THROW(check_island_name(name), Error) << name;
  }
}

TEST(Messages, EveryKindHasAName) {
  EXPECT_EQ(name_of(FromIsland(Leave{})), "leave");
  EXPECT_EQ(name_of(FromIsland(Join{})), "join");
  EXPECT_EQ(name_of(ToIsland(Finish{})), "finish");
  EXPECT_EQ(name_of(ToIsland(Welcome{})), "welcome");
}

}  // namespace
}  // namespace atl::island
