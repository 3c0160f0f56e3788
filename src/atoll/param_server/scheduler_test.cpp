#include "atoll/param_server/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "atoll/base/error.h"

namespace atl::param_server {
namespace {

constexpr std::int64_t kSlices = 6;

// Sessions 1, 2, ... are servers with these numbers; session 100 is the worker that leads.
class Schedulers : public testing::Test {
 protected:
  static RunSpec spec() {
    RunSpec spec;
    spec.identity = "run";
    spec.num_servers = spec.replicas = 2;
    spec.num_steps = 10;
    spec.num_elements = kSlices;
    for (std::int64_t i = 0; i < kSlices; ++i) {
      spec.slices.push_back(
          {.begin = i,
           .count = 1,
           .ranges = {{.begin = i, .count = 1, .value_begin = 0, .grad_begin = 0}}});
    }
    return spec;
  }
  void server_comes(SessionId session) {
    scheduler_.received(session, ServerHello{.version = kProtocolVersion,
                                             .address = "server" + std::to_string(session)});
  }
  void begin() {
    server_comes(1);
    server_comes(2);
    scheduler_.received(100, WorkerHello{.version = kProtocolVersion, .identity = "run"});
    scheduler_.received(100, Offer{spec()});
    scheduler_.received(100, Loaded{scheduler_.view().number});
  }
  Scheduler scheduler_;
};

// Slices move to the third server; then the first dies, and who was to leave a chain is needed.
TEST_F(Schedulers, NobodyLeavesASliceThatWouldHaveTooFewCopies) {
  begin();
  server_comes(3);
  ASSERT_NE(std::count(scheduler_.view().joining.begin(), scheduler_.view().joining.end(), 3), 0);
  scheduler_.closed(1);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t slice = 0; slice < kSlices; ++slice) {
      const View& view = scheduler_.view();
      ASSERT_EQ(view.chains[slice].front(), 2U);
      if (view.joining[slice] == 3) {
        scheduler_.received(2, Ready{.slice = slice, .server = 3});
      }
    }
  }
  for (const auto& chain : scheduler_.view().chains) {
    EXPECT_EQ(chain, (std::vector<ServerId>{2, 3}));
  }
}

// A server is lost while the lead gives slices their state: they are placed anew, and those that it
// has given to others are asked for again.
TEST_F(Schedulers, AStateThatWentToAnEarlierPlaceIsAskedForAgain) {
  server_comes(1);
  server_comes(2);
  scheduler_.received(100, WorkerHello{.version = kProtocolVersion, .identity = "run"});
  scheduler_.received(100, Offer{spec()});
  const std::uint64_t first = scheduler_.view().number;
  scheduler_.closed(2);
  server_comes(3);
  ASSERT_GT(scheduler_.view().number, first);
  const auto is_begun = [&] {
    const std::vector<Scheduler::Send> sends = scheduler_.take_sends();
    return std::any_of(sends.begin(), sends.end(), [](const Scheduler::Send& send) {
      return std::holds_alternative<Assign>(send.message);
    });
  };
  EXPECT_FALSE(is_begun());
  scheduler_.received(100, Loaded{first});
  EXPECT_FALSE(is_begun());
  scheduler_.received(100, Loaded{scheduler_.view().number});
  EXPECT_TRUE(is_begun());
}

// The only copy of slices is gone for ever: the run ends, and says where the next one begins.
TEST_F(Schedulers, SayWhereARunBeginsAgainThatHasLostSlices) {
  const auto why = [](std::int64_t first_step, bool has_saved) {
    Scheduler scheduler;
    RunSpec alone = spec();
    alone.num_servers = alone.replicas = 1;
    alone.first_step = first_step;
    alone.fence_every = 2;
    scheduler.received(1, ServerHello{.version = kProtocolVersion, .address = "server1"});
    scheduler.received(100, WorkerHello{.version = kProtocolVersion, .identity = "run"});
    scheduler.received(100, Offer{alone});
    scheduler.received(100, Loaded{scheduler.view().number});
    if (has_saved) {
      scheduler.received(100, Done{LaneAt{0, first_step + 2}});
      scheduler.received(100, Saved{first_step + 2});
    }
    scheduler.ticked(1);
    scheduler.closed(1);
    scheduler.ticked(2);
    scheduler.ticked(61);
    EXPECT_EQ(scheduler.why_failed(), "") << "it may come back for a minute";
    scheduler.ticked(63);
    return scheduler.why_failed();
  };
  EXPECT_EQ(
      why(0, false),
      "a server is gone with the only copy of 6 slices, and did not come back with it in 60 s; "
      "start again: no checkpoint was written yet, so the run begins at step 0 "
      "(sync.replicas=2 keeps a second copy)");
  for (const std::string& there : {why(0, true), why(4, false)}) {
    EXPECT_NE(there.find("start again: the run goes on from its last checkpoint"),
              std::string::npos)
        << there;
  }
}

TEST_F(Schedulers, ARunThatWasAskedToStopHasNotFailed) {
  begin();
  scheduler_.received(100, StopRun{});
  EXPECT_EQ(scheduler_.why_failed(), "");
}

// The session ends, and the run goes on: an exception of another kind would end the scheduler.
TEST_F(Schedulers, WhatCannotBeIsRefused) {
  begin();
  const auto refuses = [&](const Message& message, SessionId session = 100) {
    try {
      scheduler_.received(session, message);
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDamaged) << error.what();
    }
  };
  for (const LaneAt& at : {LaneAt{-1, 0}, LaneAt{1, 0}, LaneAt{0, -1}, LaneAt{0, 11},
                           LaneAt{std::int64_t{1} << 40, 0}}) {
    refuses(Done{at});
    refuses(Released{at});
  }
  refuses(WorkerHello{.version = kProtocolVersion, .identity = "run", .worker = 7}, /*session=*/1);
  refuses(ServerHello{.version = kProtocolVersion, .address = "server9"});
  scheduler_.received(100, Done{LaneAt{0, 1}});
  EXPECT_FALSE(scheduler_.is_over());
}

TEST(SchedulerSpecs, OfNoRunAreRefused) {
  RunSpec good;
  good.num_steps = 10;
  good.num_elements = 4;
  good.slices = {{.begin = 0,
                  .count = 4,
                  .ranges = {{.begin = 0, .count = 4, .value_begin = 0, .grad_begin = 0}}}};
  EXPECT_NO_THROW(check_spec(good));
  const auto refuses = [&](const std::function<void(RunSpec&)>& spoil) {
    RunSpec bad = good;
    spoil(bad);
    EXPECT_THROW(check_spec(bad), Error);
  };
  refuses([](RunSpec& spec) { spec.num_lanes = 0; });
  refuses([](RunSpec& spec) { spec.num_lanes = std::int64_t{1} << 50; });
  refuses([](RunSpec& spec) { spec.replicas = -1; });
  refuses([](RunSpec& spec) { spec.staleness = -1; });
  refuses([](RunSpec& spec) { spec.num_steps = -1; });
  refuses([](RunSpec& spec) { spec.num_elements = 5; });
  refuses([](RunSpec& spec) { spec.slices.clear(); });
  refuses([](RunSpec& spec) { spec.slices[0].begin = 1; });
  refuses([](RunSpec& spec) { spec.slices[0].ranges[0].count = 5; });
  refuses([](RunSpec& spec) { spec.slices[0].ranges[0].begin = -1; });
  refuses([](RunSpec& spec) { spec.slices[0].ranges[0].grad_begin = 1; });
  refuses([](RunSpec& spec) {
    spec.slices[0].ranges[0].count = std::numeric_limits<std::int64_t>::min();
  });
}

}  // namespace
}  // namespace atl::param_server
