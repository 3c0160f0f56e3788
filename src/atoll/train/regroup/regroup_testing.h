#pragma once

// Ranks that are lost, and ranks that join, while a run goes on: each rank is a thread, and a
// ThreadLauncher does what `atoll launch` does.

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "atoll/comm/threads/transport.h"
#include "atoll/train/ranks/membership.h"
#include "atoll/train/ranks/ranks.h"
#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {

/// What a rank that is killed throws.
struct Killed {};

/// Passes calls on, until it is told to be killed at one of them.
class KillableTransport final : public comm::Transport {
 public:
  KillableTransport(std::shared_ptr<comm::ThreadChannel> channel, int rank,
                    std::atomic<int>& calls_left)
      : channel_(std::move(channel)), inner_(*channel_, rank), calls_left_(calls_left) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string name() const override { return inner_.name(); }
  void exchange(std::span<const comm::Outgoing> outgoing,
                std::span<const comm::Incoming> incoming) override {
    inner_.exchange(outgoing, incoming);
  }
  bool run(const comm::Collective& collective) override {
    if (calls_left_.fetch_sub(1) <= 0) {
      inner_.abort("it was killed");
      throw make_error(ErrorKind::kInternal, "killed");
    }
    return inner_.run(collective);
  }
  std::unique_ptr<comm::Transport> open_channel(int number, std::span<const int> members) override {
    return inner_.open_channel(number, members);
  }
  void abort(const std::string& why) noexcept override { inner_.abort(why); }

 private:
  std::shared_ptr<comm::ThreadChannel> channel_;  // of all ranks of this world
  comm::ThreadsTransport inner_;
  std::atomic<int>& calls_left_;
};

/// Who is in the run, and the worlds that they meet in.
class ThreadLauncher {
 public:
  explicit ThreadLauncher(int size) {
    for (int id = 0; id < size; ++id) members_.insert(id);
  }

  void lose(int id) {
    const std::lock_guard lock(mutex_);
    members_.erase(id);
    meet();
  }
  void join(int id) {
    const std::lock_guard lock(mutex_);
    members_.insert(id);
    change_wanted_ = true;
  }
  bool change_wanted() {
    const std::lock_guard lock(mutex_);
    return change_wanted_;
  }

  // The place of `id` in the next world, once all members are there.
  std::pair<std::shared_ptr<comm::ThreadChannel>, int> next(int id) {
    std::unique_lock lock(mutex_);
    waiting_.insert(id);
    const int generation = generation_;
    meet();
    if (!met_.wait_for(lock, std::chrono::seconds(60), [&] { return generation_ != generation; })) {
      throw comm::PeerError(-1, "nobody came");
    }
    return {channel_, static_cast<int>(std::distance(present_.begin(), present_.find(id)))};
  }

 private:
  void meet() {
    if (waiting_ != members_ || members_.empty()) return;
    present_ = std::exchange(waiting_, {});
    channel_ = std::make_shared<comm::ThreadChannel>(static_cast<int>(present_.size()), 30.0);
    change_wanted_ = false;
    ++generation_;
    met_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable met_;
  std::set<int> members_, waiting_, present_;
  bool change_wanted_ = false;
  int generation_ = 0;
  std::shared_ptr<comm::ThreadChannel> channel_;
};

/// One of them, as its trainer sees it.
class ThreadMember final : public Membership {
 public:
  ThreadMember(ThreadLauncher& launcher, int id, bool joins, int calls_left)
      : launcher_(launcher), id_(id), joins_(joins), is_new_(joins), calls_left_(calls_left) {}

  bool joins() const override { return joins_; }
  std::unique_ptr<comm::World> next() override {
    if (std::exchange(is_new_, false)) launcher_.join(id_);
    const auto [channel, rank] = launcher_.next(id_);
    return std::make_unique<comm::World>(
        std::make_unique<KillableTransport>(channel, rank, calls_left_),
        comm::WorldOptions{.timeout_s = 30});
  }
  bool wants_change() override { return launcher_.change_wanted(); }
  bool was_killed() const { return calls_left_ < 0; }

 private:
  ThreadLauncher& launcher_;
  int id_;
  bool joins_;
  bool is_new_;
  std::atomic<int> calls_left_;
};

/// Runs whose ranks are threads of a ThreadLauncher.
class RegroupTest : public RanksFixture {
 protected:
  struct Kill {
    int rank = -1;
    int calls = 0;  // collectives until then
  };

  // Trains with `ranks` ranks, of which one is killed; after `joins_after` steps one more joins.
  Ended train_crew(const std::string& name, int ranks, const std::vector<std::string>& overrides,
                   std::vector<Kill> kills, std::int64_t joins_after = -1) {
    TrainConfig config;
    Settings settings = make_settings(config);
    configure_ranks(config, settings, name, overrides);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Captured captured;
    ThreadLauncher launcher(ranks);
    Ended ended;
    std::mutex mutex;
    std::vector<std::string> failures;
    std::thread late;
    const std::function<void(int, bool)> body = [&](int id, bool joins) {
      int calls = 1 << 30;
      for (const Kill& kill : kills) {
        if (kill.rank == id) calls = kill.calls;
      }
      ThreadMember member(launcher, id, joins, calls);
      try {
        Trainer trainer(config, settings, member);
        Joiner joiner(joins_after, [&] { late = std::thread(body, ranks, true); });
        if (id == 0) trainer.add_sink(joiner);
        const TrainOutcome outcome = trainer.run();
        const std::lock_guard lock(mutex);
        if (trainer.is_lead()) ended.outcome = outcome;
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (!member.was_killed()) failures.push_back(fmt::format("rank {}: {}", id, error.what()));
      }
      launcher.lose(id);
    };
    std::vector<std::thread> threads;
    for (int id = 0; id < ranks; ++id) threads.emplace_back(body, id, false);
    for (std::thread& thread : threads) thread.join();
    if (late.joinable()) late.join();
    EXPECT_THAT(failures, ::testing::IsEmpty());
    if (!ended.outcome.checkpoint.empty()) ended.values = whole(ended.outcome.checkpoint);
    return ended;
  }

  // Calls back once a step has been written about.
  class Joiner final : public metrics::Sink {
   public:
    Joiner(std::int64_t step, std::function<void()> action)
        : step_(step), action_(std::move(action)) {}
    void write(const metrics::Record& record) override {
      if (record.step == step_ && action_) std::exchange(action_, {})();
    }
    void flush() override {}

   private:
    std::int64_t step_;
    std::function<void()> action_;
  };
};

/// Settings with which the number of ranks changes no bit.
inline std::vector<std::string> exact(int zero) {
  return {"--train.batch_size=8",    "--train.exact=true",   fmt::format("--dp.zero={}", zero),
          "--launch.replicate=true", "--dp.bucket_mib=0.02", "--train.steps=8",
          "--optim.kind=adamw",      "--eval.every=3"};
}

}  // namespace atl::train
