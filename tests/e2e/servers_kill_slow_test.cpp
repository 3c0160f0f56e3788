// kill -9 of parameter servers, of workers and of both: whole numbers are pushed, and their sum is
// exact. Real processes and connections; ATOLL_KILL_POINTS says how many kills (by hand: 200).

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "atoll/base/rng.h"
#include "atoll/param_server/connection.h"
#include "atoll/param_server/worker_loop.h"
#include "servers_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
namespace ps = param_server;
using e2e::Program;
using e2e::Servers;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kElements = 64;  // of a slice
constexpr std::int64_t kSlices = 12;
constexpr std::int64_t kLanes = 3;

float gradient_of(std::int64_t lane, std::int64_t step, std::uint32_t slice) {
  return static_cast<float>((lane * 7 + step * 3 + slice) % 5 - 2);
}

ps::RunSpec spec_of(ps::Consistency consistency, std::int64_t num_steps) {
  ps::RunSpec spec;
  spec.identity = "sums";
  spec.consistency = consistency;
  spec.staleness = 2;
  spec.num_lanes = spec.num_workers = kLanes;
  spec.num_servers = 3;
  spec.replicas = 2;
  spec.num_steps = num_steps;
  spec.num_elements = kSlices * kElements;
  spec.optimizer.kind = "sgd";
  spec.optimizer.values = {{"weight_decay", 0.0}, {"momentum", 0.0}, {"nesterov", false}};
  for (std::int64_t i = 0; i < kSlices; ++i) {
    optim::ParamRange range{.begin = i * kElements, .count = kElements};
    range.value_begin = range.grad_begin = 0;
    spec.slices.push_back({.begin = i * kElements, .count = kElements, .ranges = {range}});
  }
  return spec;
}

std::string filled(float value) {
  const std::vector<float> values(kElements, value);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// In a process of its own. Writes "step seconds" lines to `log`, and the final sums to `result`.
[[noreturn]] void work(const ps::RunSpec& spec, std::int64_t number, const std::string& scheduler,
                       const ps::LinkOptions& link, const fs::path& log, const fs::path& result) {
  try {
    ps::Worker worker(number, spec.identity);
    if (number == 0) worker.offer(spec);
    ps::LaneAt at;
    std::map<std::uint32_t, float> sums;
    ps::WorkerHooks hooks;
    hooks.state = [](std::uint32_t slice) {
      return ps::Load{
          .slice = slice, .step = 0, .updates = 0, .values = filled(0), .state = {filled(0)}};
    };
    hooks.take_values = [](std::uint32_t /*slice*/, std::string_view /*values*/) {};
    hooks.gradient = [&](std::uint32_t slice) {
      return filled(gradient_of(at.lane, at.step, slice));
    };
    hooks.push_args = [](const ps::LaneAt& /*at*/) { return ps::PushArgs{.lr = 1, .scale = 1}; };
    hooks.decide = [](std::int64_t /*step*/, std::span<const double> /*squares*/,
                      std::span<const double> /*losses*/) {
      return ps::Update{.lr = 1, .scale = 1};
    };
    hooks.take_state = [&](const ps::State& state) {
      float value = 0;
      std::memcpy(&value, state.values.data(), sizeof(value));
      sums[state.slice] = value;
    };
    ps::WorkerLoop loop(worker, {.consistency = spec.consistency, .num_slices = kSlices}, hooks);
    ps::WorkerConnection connection(worker, scheduler, link, 60);
    using What = ps::WorkerLoop::Job::What;
    for (;;) {
      const ps::WorkerLoop::Job job = loop.next();
      if (job.what == What::kEnd) break;
      if (job.what == What::kCompute) {
        at = job.at;
        write_file(log, std::to_string(at.step));
        loop.computed();
      } else if (job.what == What::kSave) {
        std::string text;
        for (const auto& [slice, value] : sums) text += fmt::format("{} {}\n", slice, value);
        write_file(result, text);
        loop.saved();
      }
      connection.pump(std::chrono::milliseconds(job.what == What::kWait ? 20 : 0));
    }
    connection.finish();
    ::_exit(0);
  } catch (const std::exception& error) {
    [[maybe_unused]] const auto written =
        ::write(STDERR_FILENO, error.what(), std::strlen(error.what()));
    ::_exit(1);
  }
}

using Case = std::pair<ps::Consistency, ps::Transport>;

class ServerKills : public Servers, public ::testing::WithParamInterface<Case> {
 protected:
  ps::LinkOptions link() const {
    ps::LinkOptions link = {.transport = GetParam().second, .identity = {}, .secret = {}};
    if (link.transport == ps::Transport::kGrpc) link.secret = path("secret");
    return link;
  }
  // `atoll server` with what every process of this run is started with.
  std::vector<std::string> server(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {
        "server", fmt::format("--transport={}", ps::name_of(link().transport)), "--threads=1"};
    if (link().secret) all.push_back("--secret=" + path("secret"));
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void start_server(std::size_t i) {
    servers_[i] = std::make_unique<Program>(server({"--join=" + scheduler_address_}));
  }
  void start_worker(std::size_t i) {
    const pid_t child = ::fork();
    if (child == 0) {
      work(spec_, static_cast<std::int64_t>(i), scheduler_address_, link(), log(i), path("result"));
    }
    workers_[i] = child;
  }
  fs::path log(std::size_t i) const { return path(fmt::format("step-{}", i)); }
  // The furthest step that a worker has said it is at.
  std::int64_t furthest() const {
    std::int64_t most = -1;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      if (fs::exists(log(i))) most = std::max<std::int64_t>(most, std::stoll(read_file(log(i))));
    }
    return most;
  }
  void kill_worker(std::size_t i) {
    ::kill(workers_[i], SIGKILL);
    ::waitpid(workers_[i], nullptr, 0);
    start_worker(i);
  }
  void kill_server(std::size_t i) {
    servers_[i]->send(SIGKILL);
    servers_[i]->wait();
    start_server(i);
  }
  // Waits until the scheduler knows of all servers that were killed, those in their place have
  // joined, and all slices have two copies again: what one may be killed for.
  static bool has_copies(const Program& scheduler, int servers_gone) {
    return soon([&] {
      const std::string text = scheduler.errors();
      std::size_t last = 0;
      const auto count = [&](const std::string& mark) {
        int found = 0;
        for (std::size_t at = text.find(mark); at != std::string::npos;
             at = text.find(mark, at + 1)) {
          last = std::max(last, at), ++found;
        }
        return found;
      };
      return count("is gone; its slices have copies") == servers_gone &&
             count("has joined\n") == servers_gone &&
             text.find("copies are complete", last) != std::string::npos;
    });
  }

  // Starts it, or starts it again, with what it knew; it listens where it did.
  void start_scheduler() {
    scheduler_ = std::make_unique<Program>(server({"--scheduler-only", "--dir=" + path("state")}));
    const std::string mark = "scheduler at ";
    ASSERT_TRUE(soon([&] { return scheduler_->errors().find(mark) != std::string::npos; }));
    const std::string said = scheduler_->errors();
    const auto begin = said.find(mark) + mark.size();
    const std::string address = said.substr(begin, said.find('\n', begin) - begin);
    if (!scheduler_address_.empty()) {
      EXPECT_EQ(address, scheduler_address_);
    }
    scheduler_address_ = address;
  }
  void kill_scheduler() {
    scheduler_->send(SIGKILL);
    scheduler_->wait();
    ASSERT_NO_FATAL_FAILURE(start_scheduler());
  }
  // All workers end well, and the sums are those of each push once.
  void expect_sums() {
    for (const pid_t worker : workers_) {
      int status = -1;
      ::waitpid(worker, &status, 0);
      EXPECT_EQ(status, 0);
    }
    for (std::uint32_t slice = 0; slice < kSlices; ++slice) {
      float wanted = 0;
      for (std::int64_t step = 0; step < spec_.num_steps; ++step) {
        for (std::int64_t lane = 0; lane < kLanes; ++lane) wanted -= gradient_of(lane, step, slice);
      }
      EXPECT_NE(read_file(path("result")).find(fmt::format("{} {}\n", slice, wanted)),
                std::string::npos)
          << slice << " " << wanted << "\n"
          << read_file(path("result"));
    }
  }

  ps::RunSpec spec_;
  std::unique_ptr<Program> scheduler_;
  std::string scheduler_address_;
  std::vector<std::unique_ptr<Program>> servers_{3};
  std::vector<pid_t> workers_{0, 0, 0};
};

TEST_P(ServerKills, LoseNoPushAndDoubleNone) {
  const char* wish = std::getenv("ATOLL_KILL_POINTS");
  const int kills = wish == nullptr ? 6 : std::atoi(wish);
  spec_ = spec_of(GetParam().first, 40 * (kills + 1));
  ASSERT_NO_FATAL_FAILURE(start_scheduler());
  const Program& scheduler = *scheduler_;
  for (std::size_t i = 0; i < 3; ++i) start_server(i);
  for (std::size_t i = 0; i < 3; ++i) start_worker(i);
  const RngStream random(5, RngPurpose::kSynthetic);
  std::uint64_t draws = 0;
  double longest = 0;
  int servers_gone = 0;
  for (int kill = 0; kill < kills; ++kill) {
    const std::int64_t from = furthest();
    const auto wait = static_cast<std::int64_t>(random.word(draws++) % 12);
    ASSERT_TRUE(soon([&] { return furthest() >= from + 1 + wait; })) << scheduler.errors();
    ASSERT_TRUE(has_copies(scheduler, servers_gone)) << scheduler.errors();
    std::this_thread::sleep_for(std::chrono::microseconds(random.word(draws++) % 5000));
    const auto victim = static_cast<std::size_t>(random.word(draws++) % 3);
    const auto kind = random.word(draws++) % 3;
    const std::int64_t before = furthest();
    const Clock::time_point start = Clock::now();
    if (kind != 0) kill_worker(victim);
    if (kind != 1) kill_server((victim + 1) % 3), ++servers_gone;
    ASSERT_TRUE(soon([&] { return furthest() >= before + 2; })) << scheduler.errors();
    longest = std::max(longest, std::chrono::duration<double>(Clock::now() - start).count());
  }
  expect_sums();
  if (wish != nullptr) fmt::print("{} kills, the longest pause {:.2f} s\n", kills, longest);
}

// Lanes meet for a checkpoint every few steps, which nobody passes without the scheduler.
TEST_P(ServerKills, OfTheSchedulerLoseNoPushAndDoubleNone) {
  const char* wish = std::getenv("ATOLL_KILL_POINTS");
  const int kills = wish == nullptr ? 4 : std::atoi(wish);
  spec_ = spec_of(GetParam().first, 40 * (kills + 1));
  spec_.fence_every = 5;
  ASSERT_NO_FATAL_FAILURE(start_scheduler());
  for (std::size_t i = 0; i < 3; ++i) start_server(i);
  for (std::size_t i = 0; i < 3; ++i) start_worker(i);
  const RngStream random(6, RngPurpose::kSynthetic);
  std::uint64_t draws = 0;
  double longest = 0;
  for (int kill = 0; kill < kills; ++kill) {
    const std::int64_t from = furthest();
    const auto wait = static_cast<std::int64_t>(random.word(draws++) % 12);
    ASSERT_TRUE(soon([&] { return furthest() >= from + 1 + wait; })) << scheduler_->errors();
    std::this_thread::sleep_for(std::chrono::microseconds(random.word(draws++) % 20'000));
    const std::int64_t before = furthest();
    const Clock::time_point start = Clock::now();
    if (random.word(draws++) % 3 == 0) kill_worker(random.word(draws++) % 3);
    ASSERT_NO_FATAL_FAILURE(kill_scheduler());
    ASSERT_TRUE(soon([&] { return furthest() >= before + 6; })) << scheduler_->errors();
    longest = std::max(longest, std::chrono::duration<double>(Clock::now() - start).count());
  }
  expect_sums();
  EXPECT_EQ(scheduler_->wait().exit_code, 0);
  EXPECT_FALSE(fs::exists(path("state/scheduler/scheduler")));  // the next run begins with nothing
  if (wish != nullptr) fmt::print("{} kills, the longest pause {:.2f} s\n", kills, longest);
}

INSTANTIATE_TEST_SUITE_P(Servers, ServerKills,
                         ::testing::Values(Case{ps::Consistency::kBsp, ps::Transport::kGrpc},
                                           Case{ps::Consistency::kSsp, ps::Transport::kGrpc},
                                           Case{ps::Consistency::kAsync, ps::Transport::kGrpc},
                                           Case{ps::Consistency::kBsp, ps::Transport::kTcp},
                                           Case{ps::Consistency::kSsp, ps::Transport::kTcp},
                                           Case{ps::Consistency::kAsync, ps::Transport::kTcp}),
                         [](const auto& info) {
                           const std::string consistency =
                               info.param.first == ps::Consistency::kBsp   ? "bsp"
                               : info.param.first == ps::Consistency::kSsp ? "ssp"
                                                                           : "async";
                           return consistency + "_" + ps::name_of(info.param.second);
                         });

}  // namespace
}  // namespace atl
