#include "atoll/comm/record/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <latch>

#include "atoll/base/files/file.h"
#include "atoll/comm/flight_record.h"
#include "atoll/comm/testing/numbers.h"

namespace atl::comm {
namespace {

namespace fs = std::filesystem;
using test::view;
using ::testing::AllOf;
using ::testing::HasSubstr;
using State = RecordedCall::State;

Collective call_number(std::uint64_t sequence) {
  Collective call;
  call.op = Op::kBarrier;
  call.sequence = sequence;
  call.group = "world";
  return call;
}

TEST(Recorder, KeepsWhatHasNotEndedAndAllAfterIt) {
  Recorder recorder;
  const std::uint64_t hanging = recorder.queued(call_number(1));
  recorder.started(hanging);
  constexpr std::size_t kLater = 3 * Recorder::kKept;
  for (std::size_t i = 0; i < kLater; ++i) recorder.queued(call_number(2 + i));
  ASSERT_EQ(recorder.calls().size(), kLater + 1);
  EXPECT_EQ(recorder.calls().front().state, State::kRunning);
  EXPECT_THAT(recorder.describe(kLater + 1), HasSubstr("barrier #1 of world, at :0: running for"));

  recorder.ended(hanging, true);
  recorder.queued(call_number(2 + kLater));
  EXPECT_EQ(recorder.calls().front().sequence, 2U) << "it has ended, the next one not";
  EXPECT_EQ(recorder.calls().size(), kLater + 1);
}

TEST(Recorder, TellsOfEachCallAsItEnds) {
  run_threads(2, {}, [](World& world) {
    std::vector<float> data(1000);
    std::vector<RecordedCall> heard;
    world.listen([&heard](const RecordedCall& call) { heard.push_back(call); });
    world.all().all_reduce(view(data));
    world.all().start_all_gather(view(data), world.all().even_parts(1000)).wait();
    world.listen({});
    world.all().barrier();
    ASSERT_EQ(heard.size(), 2U);
    EXPECT_EQ(heard[0].op, Op::kAllReduce);
    EXPECT_FALSE(heard[0].beside) << "it ran on the caller's thread";
    EXPECT_EQ(heard[1].op, Op::kAllGather);
    EXPECT_TRUE(heard[1].beside);
    for (const RecordedCall& call : heard) {
      EXPECT_EQ(call.state, State::kDone);
      EXPECT_LE(call.started, call.ended);
    }
  });
}

class FlightRecord : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / fmt::format("atoll-flight-{}", ::getpid());
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path root_;
};

TEST_F(FlightRecord, HasTheLastCallsOfARankThatWaitedInVain) {
  std::latch given_up(1);  // so that the rank that does not come ends after the others' timeout
  std::string told;
  try {
    run_threads(2, {.timeout_s = 0.2}, [&](World& world) {
      std::vector<float> data(10);
      world.all().all_reduce(view(data));
      if (world.rank() == 1) return given_up.wait();
      try {
        world.all().all_reduce(view(data));
      } catch (const PeerError& error) {
        given_up.count_down();
        throw with_flight_record(error, world, root_ / "run");
      }
    });
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 1);
    told = error.what();
  }
  const fs::path path = root_ / "run" / "flight-rank0.txt";
  EXPECT_THAT(told, AllOf(HasSubstr("all_reduce #2 of world, f32 (10), at recorder_test.cpp:"),
                          HasSubstr("rank 1 is not here after 0.2 s"),
                          HasSubstr("; the last calls of rank 0 are in " + path.string())));
  const std::string text = read_file(path);
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0 of 2 (threads), process "),
                          HasSubstr("ended by: all_reduce #2 of world, f32 (10)"),
                          HasSubstr("\nall_reduce #1 of world, f32 (10), at recorder_test.cpp:"),
                          HasSubstr("\nall_reduce #2 of world, f32 (10), at recorder_test.cpp:")));
  EXPECT_THAT(text.substr(text.find("\nall_reduce #2")), HasSubstr(": failed after "));
}

TEST_F(FlightRecord, ThatCannotBeWrittenIsTold) {
  write_file(root_ / "file", "no directory");
  const auto world = open_self();
  const PeerError error = with_flight_record({3, "rank 3 is gone"}, *world, root_ / "file");
  EXPECT_EQ(error.rank(), 3);
  EXPECT_THAT(error.what(),
              HasSubstr("rank 3 is gone; the last calls of rank 0 could not be written ("));
}

}  // namespace
}  // namespace atl::comm
