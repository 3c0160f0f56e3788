// Which errors ranks get when one of them makes another call, makes none, or ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "atoll/comm/testing/mistakes.h"
#include "atoll/comm/testing/worlds.h"

namespace atl::comm {
namespace {

using test::Backend;
using test::errors_of;
using test::view;
using testing::HasSubstr;

WorldOptions within(double seconds) {
  WorldOptions options;
  options.timeout_s = seconds;
  return options;
}

class Mistakes : public testing::TestWithParam<test::Mistake> {};

TEST_P(Mistakes, AreNamedOnEveryRank) {
  for (const Backend backend : {Backend::kThreads, Backend::kMessages}) {
    for (const int size : {2, 3}) {
      const auto errors = errors_of(backend, size, within(20), GetParam().body);
      for (const std::string& error : errors) {
        for (const std::string& word : GetParam().words) {
          EXPECT_THAT(error, HasSubstr(word)) << test::name_of(backend) << size;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Mistakes, testing::ValuesIn(test::mistakes()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Mistake, OfAnExchangeIsNamed) {
  const auto wrong_size = [](World& world) {
    std::vector<float> data(world.rank() == 0 ? 5 : 4);
    world.rank() == 0 ? world.all().send(view(data), 1) : world.all().recv(view(data), 0);
  };
  for (const std::string& error : errors_of(Backend::kThreads, 2, within(20), wrong_size)) {
    EXPECT_THAT(error, HasSubstr("rank 0 sends f32 (5) where rank 1 expects f32 (4)"));
  }
  for (const std::string& error : errors_of(Backend::kMessages, 2, within(20), wrong_size)) {
    EXPECT_THAT(error, HasSubstr("rank 0 sends 20 bytes where rank 1 expects 16 bytes"));
  }
  const auto not_called = [](World& world) {
    std::vector<float> data(4);
    world.rank() == 0 ? world.all().recv(view(data), 1) : world.all().barrier();
  };
  for (const std::string& error : errors_of(Backend::kThreads, 2, within(20), not_called)) {
    EXPECT_THAT(error, HasSubstr("rank 1 waits elsewhere for this rank: it is in barrier #1"));
  }
}

TEST(Mistake, OfOneRankAloneIsRefusedBeforeAnyoneWaits) {
  const std::unique_ptr<World> world = open_self();
  std::vector<float> data(4);
  std::vector<std::uint8_t> bytes(4);
  const std::vector<std::int64_t> parts{0, 4}, short_parts{0, 3};
  Group& all = world->all();
  const auto refused = [](const char* why, const auto& call) {
    try {
      call();
      ADD_FAILURE() << "not refused: " << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInternal);
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  };
  refused("u8 has no reductions", [&] { all.all_reduce(view(bytes)); });
  refused("parts of 3 elements for 4", [&] { all.all_gather(view(data), short_parts); });
  refused("a tensor is missing", [&] { all.broadcast({}, 0); });
  refused("no rank 1 among 1", [&] { all.broadcast(view(data), 1); });
  refused("no rank 1", [&] { all.send(view(data), 1); });
  refused("a result of 3 elements", [&] {
    all.reduce_scatter(view(data), parts, {data.data(), {Dtype::kF32, {3}}});
  });
}

TEST(Missing, RankIsNamedWithItsLastCall) {
  std::promise<void> over;
  std::shared_future<void> is_over = over.get_future().share();
  const auto errors = errors_of(Backend::kThreads, 3, within(0.2), [&](World& world) {
    std::vector<float> data(7);
    world.all().all_reduce(view(data));
    if (world.rank() == 2) return is_over.wait();
    try {
      world.all().broadcast(view(data), 0);
    } catch (const PeerError& error) {
      if (world.rank() == 0) over.set_value();
      throw;
    }
  });
  for (const int rank : {0, 1}) {
    EXPECT_THAT(
        errors[static_cast<std::size_t>(rank)],
        testing::AllOf(HasSubstr("broadcast #2 of world, f32 (7), at mistakes_test.cpp:"),
                       HasSubstr("rank 2 is not here after 0.2 s; its last call was "
                                 "all_reduce #1 of world, f32 (7), at mistakes_test.cpp:")));
  }
}

TEST(Missing, RankOfMessagesIsNamed) {
  std::promise<void> over;
  std::shared_future<void> is_over = over.get_future().share();
  const auto errors = errors_of(Backend::kMessages, 2, within(0.1), [&](World& world) {
    if (world.rank() == 1) return is_over.wait();
    try {
      world.all().barrier();
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 1);
      over.set_value();
      throw;
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("barrier #1 of world, at mistakes_test.cpp:"));
  EXPECT_THAT(errors[0], HasSubstr("rank 1 is not here after 0.1 s"));
}

TEST(Failing, RankWakesAllOthersAtOnce) {
  for (const Backend backend : {Backend::kThreads, Backend::kMessages}) {
    // A rank that is not woken would fail after five minutes: another rank is not here.
    const auto errors = errors_of(backend, 4, within(300), [&](World& world) {
      if (world.rank() == 2) throw user_error("no file x.bin");
      std::vector<float> data(7);
      world.all().all_reduce(view(data));
    });
    for (const int rank : {0, 1, 3}) {
      EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                  testing::AllOf(HasSubstr("all_reduce #1 of world, f32 (7)"),
                                 HasSubstr("rank 2 has ended with an error: no file x.bin")));
    }
  }
}

TEST(Failing, RankIsTheOneThatRunThreadsSpeaksOf) {
  try {
    run_threads(3, within(300), [](World& world) {
      if (world.rank() == 1) throw user_error("no file x.bin");
      world.all().barrier();
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no file x.bin");
    EXPECT_EQ(error.exit_code(), 2);
  }
}

TEST(Failing, RankThatOnlyEndsIsNamedToo) {
  const auto errors = errors_of(Backend::kThreads, 2, within(300), [&](World& world) {
    world.all().barrier();
    if (world.rank() == 0) world.all().barrier();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 has ended; its last call was barrier #1"));
  EXPECT_EQ(errors[1], "");
}

TEST(Failing, StartedCallReachesWaitAndEveryLaterCall) {
  const auto errors = errors_of(Backend::kThreads, 2, within(300), [&](World& world) {
    std::vector<float> data(7);
    if (world.rank() == 1) throw user_error("no file x.bin");
    Work work = world.all().start_all_reduce(view(data));
    Work next = world.all().start_all_reduce(view(data));
    for (Work* each : {&work, &next, &work}) {
      try {
        each->wait();
        ADD_FAILURE() << "wait() does not throw";
      } catch (const PeerError& error) {
        EXPECT_EQ(error.rank(), 1);
        EXPECT_THAT(error.what(), HasSubstr("all_reduce #1 of world"));
      }
    }
    world.all().barrier();
  });
  EXPECT_THAT(errors[0], HasSubstr("all_reduce #1 of world"));
}

// An exception would free the memory that a started call reads, if Work did not wait.
TEST(Failing, RankKeepsTheTensorsOfWhatItHasStarted) {
  const auto errors = errors_of(Backend::kThreads, 2, within(300), [&](World& world) {
    std::vector<float> data(100'000, 1);
    if (world.rank() == 0) {
      const Work work = world.all().start_all_reduce(view(data));
      throw user_error("no file x.bin");
    }
    world.all().all_reduce(view(data));
    EXPECT_EQ(std::count(data.begin(), data.end(), 2.0F), 100'000);
    world.all().barrier();
  });
  EXPECT_THAT(errors[1], HasSubstr("no file x.bin"));
}

// Memory that other ranks read must stay until they are done, also when a call fails.
// AddressSanitizer finds an access after that.
TEST(Failing, RankKeepsItsMemoryWhileOthersTouchIt) {
  for (int round = 0; round < 40; ++round) {
    const auto errors = errors_of(Backend::kThreads, 3, within(300), [&](World& world) {
      std::vector<float> data(100'000);
      std::vector<float> other(data.size());
      world.all().barrier();
      std::thread interruption;
      if (world.rank() == round % 3) {
        interruption = std::thread([&] { world.abort("interrupted"); });
      }
      try {
        for (;;) {  // until the interruption
          world.all().all_reduce(view(data));
          const Piece send{(world.rank() + 1) % 3, view(data)};
          const Piece receive{(world.rank() + 2) % 3, view(other)};
          world.all().exchange({&send, 1}, {&receive, 1});
        }
      } catch (const PeerError&) {
        if (interruption.joinable()) interruption.join();
        throw;
      }
      if (interruption.joinable()) interruption.join();
    });
    EXPECT_EQ(std::count(errors.begin(), errors.end(), ""), 0);
  }
}

}  // namespace
}  // namespace atl::comm
