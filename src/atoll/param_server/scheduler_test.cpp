#include "atoll/param_server/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

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
    scheduler_.received(100, Loaded{});
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

}  // namespace
}  // namespace atl::param_server
