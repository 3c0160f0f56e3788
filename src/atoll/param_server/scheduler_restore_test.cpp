// A scheduler that goes on where the one before it was killed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/param_server/scheduler.h"
#include "atoll/param_server/scheduler_store.h"
#include "atoll/param_server/server.h"
#include "atoll/param_server/worker.h"

namespace atl::param_server {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSlices = 6;
constexpr std::uint64_t kRun = 77;

// Servers 1 and 2 have sessions 1 and 2, workers 0 and 1 sessions 100 and 101. Lanes meet at
// step 4.
class RestoredSchedulers : public testing::Test {
 protected:
  static RunSpec spec() {
    RunSpec spec;
    spec.identity = "run";
    spec.consistency = Consistency::kAsync;
    spec.num_lanes = spec.num_workers = 2;
    spec.num_servers = spec.replicas = 2;
    spec.num_steps = 8;
    spec.fence_every = 4;
    spec.num_elements = kSlices;
    for (std::int64_t i = 0; i < kSlices; ++i) {
      spec.slices.push_back(
          {.begin = i,
           .count = 1,
           .ranges = {{.begin = i, .count = 1, .value_begin = 0, .grad_begin = 0}}});
    }
    return spec;
  }
  static ServerHello server_hello(ServerId id, const Term& term = {}) {
    return {.version = kProtocolVersion,
            .address = "server" + std::to_string(id),
            .identity = term.run == 0 ? "" : "run",
            .slices = {},
            .term = term,
            .server = term.run == 0 ? kNobody : id};
  }
  static WorkerHello worker_hello(std::int64_t number, std::vector<LaneAt> lanes = {}) {
    return {.version = kProtocolVersion,
            .identity = "run",
            .worker = number,
            .lanes = std::move(lanes)};
  }
  void begin(Scheduler& scheduler) {
    scheduler.received(1, server_hello(1));
    scheduler.received(2, server_hello(2));
    scheduler.received(100, worker_hello(0));
    scheduler.received(100, Offer{spec()});
    scheduler.received(101, worker_hello(1));
    scheduler.received(100, Loaded{scheduler.view().number});
    scheduler.take_sends();
  }
  // The state as it comes from the disk.
  static Scheduler after(const Scheduler& before) {
    Scheduler scheduler;
    scheduler.restore(decode_scheduler(encode(before.state())));
    return scheduler;
  }
  template <typename T>
  static std::vector<T> told(Scheduler& scheduler, SessionId session) {
    std::vector<T> messages;
    for (const Scheduler::Send& send : scheduler.take_sends()) {
      if (send.to != session) continue;
      if (const auto* message = std::get_if<T>(&send.message)) messages.push_back(*message);
    }
    return messages;
  }
  Scheduler first_{{}, kRun};
};

TEST_F(RestoredSchedulers, HaveTheViewUnderANewerNumber) {
  begin(first_);
  const Scheduler next = after(first_);
  EXPECT_EQ(next.term().run, kRun);
  EXPECT_EQ(next.term().epoch, first_.term().epoch + 1);
  EXPECT_EQ(next.view().chains, first_.view().chains);
  EXPECT_GT(next.view().number, first_.view().number);
  // Also than a view that was not written.
  first_.received(3, server_hello(3));
  EXPECT_GT(next.view().number, first_.view().number);
}

TEST_F(RestoredSchedulers, TakeServersBackAsWhatTheyWere) {
  begin(first_);
  Scheduler next = after(first_);
  next.received(5, server_hello(2, first_.term()));
  const std::vector<Welcome> welcomes = told<Welcome>(next, 5);
  ASSERT_EQ(welcomes.size(), 1u);
  EXPECT_EQ(welcomes[0].server, 2u);
  EXPECT_EQ(next.view().chains, first_.view().chains);
  next.ticked(0);
  next.ticked(100);  // server 1 and the workers do not come
  for (const auto& chain : next.view().chains) EXPECT_EQ(chain, std::vector<ServerId>{2});
  EXPECT_EQ(next.num_workers(), 0u);
}

TEST_F(RestoredSchedulers, TakeAServerThatStartedAgainForANewOne) {
  begin(first_);
  Scheduler next = after(first_);
  next.received(4, server_hello(1, first_.term()));
  ServerHello hello = server_hello(2, first_.term());
  hello.is_restored = true;
  next.received(5, hello);
  const std::vector<Welcome> welcomes = told<Welcome>(next, 5);
  ASSERT_EQ(welcomes.size(), 1u);
  EXPECT_EQ(welcomes[0].server, 3u);
  for (const auto& chain : next.view().chains) EXPECT_EQ(chain.front(), 1u);
}

TEST_F(RestoredSchedulers, LeaveLanesWithTheirWorkersAndHearHowFarTheyAre) {
  begin(first_);
  Scheduler next = after(first_);  // wrote nothing of what follows
  first_.received(100, Done{{0, 3}});
  next.received(200, worker_hello(1, {{1, 4}}));
  std::vector<Assign> assigns = told<Assign>(next, 200);
  ASSERT_EQ(assigns.size(), 1u);
  ASSERT_EQ(assigns[0].lanes.size(), 1u);
  EXPECT_EQ(assigns[0].lanes[0].lane, 1);
  EXPECT_EQ(assigns[0].lanes[0].step, 4);
  // The other one comes, and all lanes are where they meet.
  next.received(201, worker_hello(0, {{0, 4}}));
  EXPECT_EQ(told<Save>(next, 201).size(), 1u);
}

TEST_F(RestoredSchedulers, GiveLanesOfAWorkerThatStartedAgainAnew) {
  begin(first_);
  Scheduler next = after(first_);
  next.received(200, worker_hello(1));
  const std::vector<Assign> assigns = told<Assign>(next, 200);
  ASSERT_FALSE(assigns.empty());
  ASSERT_EQ(assigns.back().lanes.size(), 1u);
  EXPECT_EQ(assigns.back().lanes[0].step, 0);
}

TEST_F(RestoredSchedulers, GiveNoLaneTwice) {
  begin(first_);
  Scheduler next = after(first_);
  next.ticked(0);
  next.received(201, worker_hello(0, {{0, 1}}));
  next.ticked(100);  // worker 1 does not come, and worker 0 gets its lane
  std::vector<Assign> assigns = told<Assign>(next, 201);
  ASSERT_FALSE(assigns.empty());
  EXPECT_EQ(assigns.back().lanes.size(), 2u);
  next.received(200, worker_hello(1, {{1, 1}}));  // it does, and believes that it has the lane
  assigns = told<Assign>(next, 200);
  ASSERT_FALSE(assigns.empty());
  EXPECT_TRUE(assigns.back().lanes.empty());
}

TEST_F(RestoredSchedulers, AskForACheckpointThatWasDue) {
  begin(first_);
  first_.received(100, Done{{0, 4}});
  first_.received(101, Done{{1, 4}});
  Scheduler next = after(first_);
  next.received(200, worker_hello(0, {{0, 4}}));
  EXPECT_EQ(told<Save>(next, 200).size(), 1u);
  next.received(200, Saved{4});
  next.received(201, worker_hello(1, {{1, 4}}));
  const std::vector<Assign> assigns = told<Assign>(next, 201);
  ASSERT_FALSE(assigns.empty());
  EXPECT_EQ(assigns.back().until, 8);
}

TEST_F(RestoredSchedulers, TellTheEndToThoseWhoHaveNotHeardIt) {
  begin(first_);
  first_.received(100, StopRun{});
  first_.received(100, Done{{0, 4}});
  first_.received(101, Done{{1, 4}});
  first_.received(100, Saved{4});
  Scheduler next = after(first_);
  EXPECT_FALSE(next.is_over());
  next.received(200, worker_hello(0));
  EXPECT_EQ(told<End>(next, 200).size(), 1u);
  next.closed(200);
  next.ticked(0);
  EXPECT_FALSE(next.is_over());
  next.ticked(100);
  EXPECT_TRUE(next.is_over());
}

TEST_F(RestoredSchedulers, PlaceSlicesAnewThatWereNotLoaded) {
  first_.received(1, server_hello(1));
  first_.received(2, server_hello(2));
  first_.received(100, worker_hello(0));
  first_.received(100, Offer{spec()});
  Scheduler next = after(first_);
  next.received(1, server_hello(1, first_.term()));
  next.received(2, server_hello(2, first_.term()));
  next.received(100, worker_hello(0));
  next.received(100, Offer{spec()});
  const std::vector<Welcome> welcomes = told<Welcome>(next, 100);
  ASSERT_EQ(welcomes.size(), 1u);
  EXPECT_TRUE(welcomes[0].shall_load);
  for (const auto& chain : next.view().chains) EXPECT_EQ(chain.size(), 2u);
}

TEST_F(RestoredSchedulers, AreRefusedByThoseWhoHaveHeardOfANewerOne) {
  begin(first_);
  Scheduler next = after(first_);
  first_.received(9, server_hello(2, next.term()));
  const std::vector<Refused> refusals = told<Refused>(first_, 9);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_THAT(refusals[0].why, HasSubstr("newer scheduler"));

  Worker worker(0, "run");
  worker.received_from_scheduler(Welcome{.term = next.term()});
  EXPECT_EQ(worker.refusal(), "");
  worker.received_from_scheduler(Welcome{.term = first_.term()});
  EXPECT_THAT(worker.refusal(), HasSubstr("two of them run"));

  const auto device = open_device({.threads = 1});
  const auto stream = device->open_stream();
  Server server(*stream, "server1");
  server.received_from_scheduler(Welcome{.term = next.term(), .server = 1});
  EXPECT_EQ(server.refusal(), "");
  server.received_from_scheduler(Welcome{.term = first_.term(), .server = 1});
  EXPECT_THAT(server.refusal(), HasSubstr("two of them run"));
}

TEST_F(RestoredSchedulers, ThatKnowNothingAreToldFromThoseThatDo) {
  Worker worker(0, "run");
  worker.received_from_scheduler(Welcome{.term = {.run = kRun, .epoch = 1}});
  worker.received_from_scheduler(
      Welcome{.term = {.run = kRun + 1, .epoch = 1}, .shall_load = true});
  EXPECT_THAT(worker.refusal(), HasSubstr("knows nothing of this run"));
  EXPECT_FALSE(worker.take_shall_load());
}

// What a worker tells while no scheduler is there is lost. The next one may give it the lane from
// where that one knew it to be.
TEST_F(RestoredSchedulers, HearOfWhatAWorkerHadDoneWithoutThem) {
  Worker worker(0, "run");
  worker.received_from_scheduler(Welcome{.term = first_.term()});
  worker.received_from_scheduler(Assign{.lanes = {{0, 0}}, .until = 4});
  worker.done(0, 4);
  worker.take_sends();
  worker.connected_to_scheduler();
  worker.received_from_scheduler(Assign{.lanes = {{0, 1}}, .until = 4});
  const std::vector<Worker::Send> sends = worker.take_sends();
  ASSERT_EQ(sends.size(), 2u);
  const auto* hello = std::get_if<WorkerHello>(&sends[0].message);
  const auto* done = std::get_if<Done>(&sends[1].message);
  ASSERT_TRUE(hello != nullptr && done != nullptr);
  ASSERT_EQ(hello->lanes.size(), 1u);
  EXPECT_EQ(hello->lanes[0].step, 4);
  EXPECT_EQ(done->at.step, 4);
}

TEST_F(RestoredSchedulers, SayWhatMustBeWrittenBeforeItIsSent) {
  begin(first_);
  EXPECT_TRUE(first_.take_changed());
  first_.received(100, Done{{0, 1}});
  EXPECT_FALSE(first_.take_changed());  // the worker knows it
  EXPECT_TRUE(first_.take_moved());
  first_.received(100, Done{{0, 4}});
  first_.received(101, Done{{1, 4}});
  EXPECT_TRUE(first_.take_changed());  // a checkpoint is asked for
  first_.closed(2);
  EXPECT_TRUE(first_.take_changed());
}

// A directory of its own.
class SchedulerStores : public RestoredSchedulers {
 protected:
  SchedulerStores() {
    std::string name = "/tmp/atoll-scheduler-XXXXXX";
    dir_ = ::mkdtemp(name.data());
  }
  ~SchedulerStores() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_;
};

TEST_F(SchedulerStores, GiveBackWhatWasWritten) {
  begin(first_);
  {
    SchedulerStore store(dir_ / "new");
    EXPECT_FALSE(store.found());
    store.write(first_.state(), "alpha:1");
  }
  SchedulerStore store(dir_ / "new");
  ASSERT_TRUE(store.found());
  EXPECT_EQ(store.address(), "alpha:1");
  EXPECT_EQ(encode(*store.found()), encode(first_.state()));
  store.remove();
  store.remove();
}

TEST_F(SchedulerStores, HaveOneProcessAtATime) {
  const SchedulerStore store(dir_);
  try {
    const SchedulerStore second(dir_);
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("one scheduler"));
  }
}

TEST_F(SchedulerStores, RefuseAnOlderSchedulersWrite) {
  SchedulerStore store(dir_);
  begin(first_);
  const Scheduler next = after(first_);
  store.write(next.state(), "alpha:1");
  EXPECT_THROW(store.write(first_.state(), "alpha:1"), Error);
}

TEST_F(SchedulerStores, TellOfADamagedFile) {
  begin(first_);
  SchedulerStore(dir_).write(first_.state(), "alpha:1");
  std::string bytes = read_file(dir_ / "scheduler");
  bytes[bytes.size() / 2] ^= 1;
  write_file(dir_ / "scheduler", bytes);
  try {
    const SchedulerStore store(dir_);
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
    EXPECT_THAT(error.what(), HasSubstr("scheduler is damaged"));
  }
}

}  // namespace
}  // namespace atl::param_server
