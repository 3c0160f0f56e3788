#include "atoll/launch/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "atoll/base/error.h"
#include "atoll/launch/generation.h"
#include "atoll/launch/membership.h"
#include "atoll/launch/offer.h"
#include "atoll/launch/rank_main.h"
#include "atoll/launch/rank_processes.h"
#include "atoll/launch/ranks.h"

namespace atl::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string refusal(const std::function<void()>& action, ErrorKind kind = ErrorKind::kUser) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "(not refused)";
}

// An extension: ranks of one host that meet at a rendezvous, each of which is left alone there, and
// that cannot regroup. What it is asked for is kept.
class BackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    add_backend({.name = "pigeon",
                 .bootstrap = Bootstrap::kRendezvous,
                 .why_not_built = [this] { return why_not_built_; },
                 .open =
                     [this](const RankPlace& place, const comm::WorldOptions& options) {
                       places_.push_back(place);
                       return comm::open_self(options);
                     }});
  }
  void TearDown() override { remove_backend("pigeon"); }

  std::string why_not_built_;
  std::vector<RankPlace> places_;
};

TEST(Backends, AreListedAsTextsHaveThem) {
  std::vector<std::string> names;
  for (const Backend& backend : backends()) names.push_back(backend.name);
  EXPECT_THAT(names, ElementsAre("threads", "mpi", "gloo", "tcp"));
  EXPECT_EQ(backend_names({Bootstrap::kRendezvous}), "gloo or tcp");
  EXPECT_EQ(backend_help(), "threads (of this process, the default), gloo, tcp or mpi (processes)");
  EXPECT_EQ(launched_backend_help(), "gloo (the default), tcp or mpi");
  EXPECT_EQ(default_backend(Bootstrap::kThreads).name, "threads");
  EXPECT_EQ(default_backend(Bootstrap::kMpirun).name, "mpi");
  EXPECT_EQ(default_backend(Bootstrap::kRendezvous).name, "gloo");
}

TEST(Backends, SayWhatTheyCan) {
  for (const char* name : {"gloo", "tcp"}) {
    const Backend& backend = find_backend(name);
    EXPECT_TRUE(backend.can_regroup && backend.spans_hosts && backend.meets_at_rendezvous());
  }
  const Backend& mpi = find_backend("mpi");
  EXPECT_TRUE(!mpi.can_regroup && mpi.spans_hosts && mpi.is_started_by_mpirun());
  const Backend& threads = find_backend("threads");
  EXPECT_TRUE(!threads.can_regroup && !threads.spans_hosts && threads.is_threads());
}

TEST(Backends, AnUnknownOneIsRefusedWithAllNames) {
  EXPECT_EQ(
      refusal([] { find_backend("carrier-hawk"); }),
      "--backend=carrier-hawk: there is no such backend; there are threads, mpi, gloo and tcp");
  EXPECT_EQ(refusal([] { find_launched_backend("carrier-hawk"); }),
            "--backend=carrier-hawk: there is no such backend; use gloo, tcp or mpi");
  EXPECT_EQ(refusal([] { find_launched_backend("threads"); }),
            "--backend=threads: `atoll launch` starts processes, because threads of one would die "
            "together; use gloo, tcp or mpi");
}

TEST(Backends, RanksThatAreThreadsRunAsTheirBackendSays) {
  int sum = 0;
  const RankPlan plan = plan_ranks({.num_ranks = 3}, {});
  run_rank_threads(plan, {.timeout_s = 60}, [&](comm::World& world) {
    EXPECT_EQ(world.backend(), "threads");
    world.all().barrier();
    if (world.rank() == 0) sum = world.size();
  });
  EXPECT_EQ(sum, 3);
}

TEST_F(BackendTest, AnAddedOneIsNamedAmongTheOthers) {
  EXPECT_EQ(&find_backend("pigeon"), &find_launched_backend("pigeon"));
  EXPECT_EQ(refusal([] { find_backend("carrier-hawk"); }),
            "--backend=carrier-hawk: there is no such backend; there are threads, mpi, gloo, tcp "
            "and pigeon");
  EXPECT_THAT(refusal([] { find_backend("pigeom"); }), HasSubstr("did you mean pigeon?"));
  EXPECT_THAT(refusal([] { find_launched_backend("threads"); }),
              HasSubstr("use gloo, tcp, pigeon or mpi"));
  EXPECT_EQ(backend_help(),
            "threads (of this process, the default), gloo, tcp, pigeon or mpi (processes)");
  EXPECT_EQ(launched_backend_help(), "gloo (the default), tcp, pigeon or mpi");
  remove_backend("pigeon");
  EXPECT_THAT(refusal([] { find_backend("pigeon"); }), HasSubstr("no such backend"));
}

TEST_F(BackendTest, FlagsNameItLikeAnyOther) {
  const RankPlan first = plan_ranks({.num_ranks = 2, .backend = "pigeon"}, {});
  EXPECT_EQ(first.role, Role::kParent);
  EXPECT_EQ(first.backend, "pigeon");
  const RankFlags by_hand = {.backend = "pigeon", .rank = 1, .ranks = 2, .rendezvous = "file:///d"};
  EXPECT_EQ(plan_ranks(by_hand, {}).role, Role::kRank);
  EXPECT_EQ(refusal([] { plan_ranks({.backend = "pigeon", .hostfile = "hosts"}, {}); }),
            "--backend=pigeon makes ranks on one host, so it takes no --hostfile; use gloo or mpi");
  EXPECT_THAT(refusal([] {
                plan_ranks({.backend = "mpi", .rank = 1, .ranks = 2, .rendezvous = "file:///d"},
                           {});
              }),
              HasSubstr("--rank is for --backend=gloo, tcp or pigeon; mpirun gives ranks"));
}

TEST_F(BackendTest, ARankOpensItsWorldByIt) {
  const RankPlan plan =
      plan_ranks({.backend = "pigeon", .rank = 0, .ranks = 2, .rendezvous = "file:///d"}, {});
  std::string backend;
  const int code =
      run_rank(plan, {.generation = 5}, {}, [&](comm::World& world, RankReporter& /*reporter*/) {
        backend = world.backend();
        return 7;
      });
  EXPECT_EQ(code, 7);
  EXPECT_EQ(backend, "self");
  ASSERT_EQ(places_.size(), 1U);
  EXPECT_EQ(places_[0].rank, 0);
  EXPECT_EQ(places_[0].size, 2);
  EXPECT_EQ(places_[0].rendezvous, "file:///d");
  EXPECT_EQ(places_[0].generation, 5);
}

TEST_F(BackendTest, ItsRanksAreStartedWithItsName) {
  const auto processes = rendezvous_processes({.program = "atoll"}, {"", ""},
                                              {.rendezvous = "tcp://h:7", .backend = "pigeon"});
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_THAT(processes[1].argv, Contains("--backend=pigeon"));
  const RankOrder order = {.rank = 1, .ranks = 2, .backend = "pigeon"};
  EXPECT_EQ(parse_order(format_order(order)), order);
}

TEST_F(BackendTest, ItIsRefusedWhereItIsNotBuiltOrCannotReach) {
  const auto start = [](bool has_remote) {
    return [has_remote] { Generations("pigeon", {.program = "atoll"}, "", has_remote); };
  };
  EXPECT_EQ(refusal(start(false)), "(not refused)");
  EXPECT_THAT(refusal(start(true)), StartsWith("--backend=pigeon: its ranks are on one host"));
  why_not_built_ = "this atoll was built without pigeons";
  EXPECT_EQ(refusal(start(false)), "this atoll was built without pigeons");
}

TEST_F(BackendTest, RegroupingIsRefusedByName) {
  for (const std::string name : {"pigeon", "mpi", "threads"}) {
    EXPECT_THAT(
        refusal([&] { LaunchMembership({.rendezvous = "file:///d", .backend = name}, {}); }),
        StartsWith("--backend=" + name + ": its ranks cannot regroup"));
  }
  EXPECT_THAT(
      refusal([] { LaunchMembership({.rendezvous = "file:///d", .backend = "carrier-hawk"}, {}); }),
      HasSubstr("tcp and pigeon"));
}

TEST_F(BackendTest, ANameIsNewAndMakesAWord) {
  const auto add = [](const std::string& name) {
    const Backend backend = {.name = name, .open = find_backend("pigeon").open};
    return refusal([&] { add_backend(backend); }, ErrorKind::kInternal);
  };
  EXPECT_THAT(add("tcp"), HasSubstr("backend tcp is there already"));
  for (const char* name : {"", "a b", "-a", "Pigeon", "7"}) {
    EXPECT_THAT(add(name), HasSubstr(fmt::format("'{}' is no name of a backend", name)));
  }
}

}  // namespace
}  // namespace atl::launch
