#include "atoll/launch/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/comm/gloo/world.h"

namespace atl::launch {
namespace {

using ::testing::HasSubstr;
using World = std::unique_ptr<comm::World>;

const comm::WorldOptions kPatient = {.timeout_s = 60};

// Ranks are threads here; what `atoll launch` does, the test does.
class MembershipTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!comm::has_gloo()) GTEST_SKIP() << "without Gloo";
  }
  std::unique_ptr<LaunchMembership> process(int number, bool joins = false,
                                            std::vector<std::string> agreement = {"x = 1"}) {
    return std::make_unique<LaunchMembership>(
        MembershipOptions{.rendezvous = server_.address(),
                          .number = number,
                          .generation = rank_list_.generation() + (joins ? 1 : 0),
                          .joins = joins,
                          .agreement = std::move(agreement)},
        kPatient);
  }
  static std::future<World> next(LaunchMembership& process) {
    return std::async(std::launch::async, [&process] { return process.next(); });
  }
  static std::string failure(std::future<World> world, ErrorKind kind) {
    try {
      world.get();
    } catch (const comm::PeerError& error) {
      return fmt::format("a PeerError, which would be survived: {}", error.what());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return error.what();
    }
    return "(none)";
  }
  // Whether these are ranks of one world, in their order.
  static void expect_together(const std::vector<comm::World*>& worlds) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < worlds.size(); ++rank) {
      EXPECT_EQ(worlds[rank]->rank(), static_cast<int>(rank));
      EXPECT_EQ(worlds[rank]->size(), static_cast<int>(worlds.size()));
      threads.emplace_back([world = worlds[rank]] { world->all().barrier(); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // All worlds end together, as they say goodbye to each other.
  static void end(std::vector<World> worlds) {
    std::vector<std::thread> threads;
    for (World& world : worlds) {
      threads.emplace_back([&world] { world.reset(); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  comm::RendezvousServer server_{"127.0.0.1", 0};
  RankList rank_list_{server_.address()};
};

TEST_F(MembershipTest, ThoseThatStayMeetAgainAndThoseThatJoinComeLast) {
  rank_list_.begin({"", "", ""});
  auto a = process(0), b = process(1), c = process(2);
  auto wa = next(*a), wb = next(*b), wc = next(*c);
  std::vector<World> all;
  for (auto* world : {&wa, &wb, &wc}) all.push_back(world->get());
  expect_together({all[0].get(), all[1].get(), all[2].get()});
  end(std::move(all));

  rank_list_.remove(1);
  wa = next(*a);
  wc = next(*c);
  World first = wa.get(), second = wc.get();
  expect_together({first.get(), second.get()});
  EXPECT_EQ(first->options().local_ranks, 2);

  EXPECT_FALSE(a->wants_change());
  auto d = process(rank_list_.expect(""), /*joins=*/true);
  EXPECT_TRUE(d->joins());
  auto wd = next(*d);
  while (rank_list_.admit() == 0) std::this_thread::yield();
  while (!a->wants_change()) std::this_thread::yield();
  std::vector<World> left;
  left.push_back(std::move(first));
  left.push_back(std::move(second));
  end(std::move(left));
  wa = next(*a);
  wc = next(*c);
  std::vector<World> now;
  for (auto* world : {&wa, &wc, &wd}) now.push_back(world->get());
  expect_together({now[0].get(), now[1].get(), now[2].get()});
  end(std::move(now));
}

TEST_F(MembershipTest, ANewerRollEndsTheWaitForOneThatIsLost) {
  rank_list_.begin({"", "", ""});
  auto a = process(0), b = process(1);
  auto wa = next(*a), wb = next(*b);
  EXPECT_EQ(wa.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  rank_list_.remove(2);
  std::vector<World> worlds;
  worlds.push_back(wa.get());
  worlds.push_back(wb.get());
  expect_together({worlds[0].get(), worlds[1].get()});
  end(std::move(worlds));
}

// An agent may leave only then.
TEST_F(MembershipTest, TheyHaveSettledWhenTheLeadIsAskedAfterAStep) {
  rank_list_.begin({"", ""});
  auto a = process(0), b = process(1);
  auto wa = next(*a), wb = next(*b);
  std::vector<World> worlds;
  worlds.push_back(wa.get());
  worlds.push_back(wb.get());
  expect_together({worlds[0].get(), worlds[1].get()});
  EXPECT_FALSE(rank_list_.is_settled());  // they meet, and what they hold is still to be shared out
  EXPECT_FALSE(a->wants_change());
  EXPECT_TRUE(rank_list_.is_settled());
  rank_list_.remove(1);
  EXPECT_FALSE(rank_list_.is_settled());
  while (!a->wants_change()) std::this_thread::yield();
  EXPECT_FALSE(rank_list_.is_settled());  // a step of the old world
  end(std::move(worlds));
  World alone = next(*a).get();
  EXPECT_FALSE(rank_list_.is_settled());
  EXPECT_FALSE(a->wants_change());
  EXPECT_TRUE(rank_list_.is_settled());
}

TEST_F(MembershipTest, WhoIsNotWantedEnds) {
  rank_list_.begin({"", ""});
  auto a = process(0);
  auto wa = next(*a);
  rank_list_.dissolve();
  EXPECT_THAT(failure(std::move(wa), ErrorKind::kPeer), HasSubstr("do not go on"));
}

TEST_F(MembershipTest, SettingsThatDifferAreNamed) {
  rank_list_.begin({"", ""});
  auto a = process(0), b = process(1, false, {"x = 2"});
  auto wa = next(*a), wb = next(*b);
  for (auto* world : {&wa, &wb}) {
    EXPECT_THAT(failure(std::move(*world), ErrorKind::kUser),
                HasSubstr("rank 1 has `x = 2` and rank 0 has `x = 1`"));
  }
}

TEST_F(MembershipTest, WhoJoinsWithOtherSettingsIsRefused) {
  rank_list_.begin({""});
  auto a = process(0);
  const World alone = next(*a).get();
  EXPECT_EQ(alone->size(), 1);
  auto b = process(rank_list_.expect(""), /*joins=*/true, {"x = 1", "y = 2"});
  EXPECT_THAT(failure(next(*b), ErrorKind::kUser),
              HasSubstr("the rank that joins has `y = 2` and rank 0 has `nothing more`"));
  EXPECT_EQ(rank_list_.admit(), 0);
}

}  // namespace
}  // namespace atl::launch
