#include "atoll/train/report/trace.h"

#include <atomic>
#include <latch>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "atoll/comm/flight_record.h"
#include "atoll/train/trainer_testing.h"

namespace atl::train {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = metrics::Span::Clock;

TEST(ClockOffset, IsFoundWithinItsUncertainty) {
  comm::run_threads(3, {.timeout_s = 60}, [](comm::World& world) {
    const nanoseconds behind = world.rank() * std::chrono::hours(1);
    const ClockOffset found = clock_offset(world, [&] { return Clock::now() - behind; });
    if (world.rank() == 0) {
      EXPECT_EQ(found.ahead.count(), 0);
      return;
    }
    EXPECT_GT(found.uncertainty.count(), 0);
    EXPECT_LT(found.uncertainty, std::chrono::hours(1));  // which it is behind
    EXPECT_LE(std::abs((found.ahead - behind).count()), found.uncertainty.count());
  });
}

class TraceOfARun : public TrainerTest {
 protected:
  std::string file() const { return (root_ / "trace.json").string(); }

  /// A run of some ranks; `body` is called on each with its trainer and ends with run().
  void run_ranks(int ranks, std::vector<std::string> overrides,
                 const std::function<void(comm::World&, Trainer&)>& body, double timeout_s = 60) {
    TrainConfig config;
    Settings settings = make_settings(config);
    overrides.insert(overrides.end(), {"--device.threads=1", "--train.steps=8"});
    configure(settings, "run", overrides);
    validate(config, settings);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Captured captured;
    comm::run_threads(ranks, {.timeout_s = timeout_s}, [&](comm::World& world) {
      try {
        Trainer trainer(config, settings, world);
        body(world, trainer);
      } catch (const comm::PeerError& error) {
        throw comm::with_flight_record(error, world, config.run.dir);
      }
    });
  }
  void run_ranks(int ranks, std::vector<std::string> overrides) {
    run_ranks(ranks, std::move(overrides), [](comm::World&, Trainer& trainer) { trainer.run(); });
  }

  /// The spans of the trace whose name begins with `name`, of one rank.
  std::vector<json> spans(const std::string& name, int rank) const {
    std::vector<json> found;
    for (const json& event : json::parse(read_file(file()))) {
      if (event.at("ph") == "X" && event.at("pid") == rank &&
          event.at("name").get<std::string>().starts_with(name)) {
        found.push_back(event);
      }
    }
    return found;
  }
  /// The calls of a collective by group, sequence: one span of each rank.
  std::map<std::string, std::vector<json>> calls(const std::string& op) const {
    std::map<std::string, std::vector<json>> found;
    for (const json& event : json::parse(read_file(file()))) {
      if (event.at("ph") == "X" && event.at("name") == op) {
        const json& args = event.at("args");
        found[args.at("group").get<std::string>() + args.at("sequence").dump()].push_back(event);
      }
    }
    return found;
  }
};

TEST_F(TraceOfARun, HasEveryRankOnOneClock) {
  run_ranks(3, {"--log.trace=" + file(), "--log.trace_steps=3", "--log.trace_after=2",
                "--train.batch_size=6", "--dp.zero=2"});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(spans("step ", rank).size(), 3U);
    EXPECT_EQ(spans("step 3", rank).size(), 1U);
    EXPECT_EQ(spans("optimizer", rank).size(), 3U);
    EXPECT_GE(spans("forward ", rank).size(), 3U * 4);
    EXPECT_EQ(spans("forward ", rank).size(), spans("backward ", rank).size());
    for (const json& pass : spans("forward ", rank)) EXPECT_EQ(pass.at("tid"), 0);
  }
  const auto reductions = calls("reduce_scatter");
  EXPECT_GE(reductions.size(), 3U);
  for (const auto& [name, ranks] : reductions) {
    ASSERT_EQ(ranks.size(), 3U) << name;
    std::set<int> who;
    double latest_begin = 0, earliest_end = 1e300;
    for (const json& span : ranks) {
      who.insert(span.at("pid").get<int>());
      EXPECT_EQ(span.at("tid"), 1) << "beside the passes";
      EXPECT_GT(span.at("args").at("bytes"), 0);
      EXPECT_THAT(span.at("args").at("where").get<std::string>(),
                  HasSubstr("store_data_parallel.cpp:"));
      const double begin = span.at("ts").get<double>();
      latest_begin = std::max(latest_begin, begin);
      earliest_end = std::min(earliest_end, begin + span.at("dur").get<double>());
    }
    EXPECT_EQ(who.size(), 3U);
    // Nobody can end before all have begun; clocks of one host are off by microseconds.
    EXPECT_LT(latest_begin, earliest_end + 1000) << name;
  }
}

TEST_F(TraceOfARun, HasEvaluationsAndCheckpointsOfARankAlone) {
  run_ranks(1, {"--log.trace=" + file(), "--eval.every=2", "--checkpoint.every=3"});
  EXPECT_EQ(spans("step ", 0).size(), 8U) << "as many as there were";
  EXPECT_EQ(spans("evaluate", 0).size(), 4U);
  EXPECT_EQ(spans("begin save", 0).size(), 3U);
  EXPECT_EQ(spans("next batch", 0).size(), 16U);
}

TEST_F(TraceOfARun, ChangesNoBit) {
  const auto trained = [&](const std::vector<std::string>& more) {
    std::filesystem::remove_all(root_ / "run");
    run_ranks(2, more);
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_ / "run")) {
      if (entry.path().extension() != ".safetensors") continue;
      files[entry.path().lexically_relative(root_).string()] = read_file(entry.path());
    }
    EXPECT_GE(files.size(), 2U);
    return files;
  };
  EXPECT_EQ(trained({"--log.trace=" + file()}), trained({}));
}

TEST_F(TraceOfARun, ThatCannotBeWrittenIsToldBeforeItBegins) {
  std::atomic<int> refused = 0, reports = 0;
  run_ranks(3, {"--train.batch_size=6", "--log.trace=" + (root_ / "no/such/trace.json").string()},
            [&](comm::World& world, Trainer& trainer) {
              const auto run = [&] { trainer.run(); };
              EXPECT_THAT(error_of(run, ErrorKind::kUser), HasSubstr("no/such/trace.json"));
              ++refused;
              reports += world.reports() ? 1 : 0;
            });
  EXPECT_EQ(refused, 3) << "on every rank";
  EXPECT_EQ(reports, 1) << "told once";
}

TEST_F(TraceOfARun, ARankThatHangsIsNamedAndTheLastCallsAreKept) {
  std::latch given_up(1);
  const std::string message = error_of(
      [&] {
        run_ranks(
            2, {"--comm.check_every=0"},
            [&](comm::World& world, Trainer& trainer) {
              trainer.on_step([&](std::int64_t step) {
                if (world.rank() == 1 && step == 3) given_up.wait();
              });
              try {
                trainer.run();
              } catch (const comm::PeerError&) {
                if (world.rank() == 0) given_up.count_down();
                throw;
              }
            },
            /*timeout_s=*/0.5);
      },
      ErrorKind::kPeer);
  EXPECT_THAT(message, AllOf(HasSubstr("rank 1 is not here after 0.5 s"), HasSubstr("all_gather #"),
                             HasSubstr(" of world, f64 ("), HasSubstr("at ranks.cpp:"),
                             HasSubstr("flight-rank0.txt")));
  const std::string text = read_file(root_ / "run" / "flight-rank0.txt");
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0 of 2 (threads)"), HasSubstr("failed after"),
                          HasSubstr("at store_data_parallel.cpp:")));
}

TEST_F(TraceOfARun, RanksWhoseParametersDifferAreNamedAtTheNextComparison) {
  TrainConfig config, other;
  Settings settings = make_settings(config), others = make_settings(other);
  const std::vector<std::string> overrides = {"--device.threads=1", "--train.steps=8",
                                              "--comm.check_every=3", "--train.batch_size=6"};
  configure(settings, "run", overrides);
  configure(others, "run", overrides);
  others.override("--optim.lr=0.0010001");
  const std::string message = error_of(
      [&] {
        ::testing::internal::CaptureStdout();
        ::testing::internal::CaptureStderr();
        const Captured captured;
        comm::run_threads(3, {.timeout_s = 60}, [&](comm::World& world) {
          const bool differs = world.rank() == 1;
          Trainer(differs ? other : config, differs ? others : settings, world).run();
        });
      },
      ErrorKind::kDamaged);
  EXPECT_THAT(message, HasSubstr("step 3: the parameters of rank 1 are not those of rank 0"));
}

}  // namespace
}  // namespace atl::train
