// How fast workers push gradients to parameter servers and pull values from them, over each
// transport in turn, on this machine. Nothing is computed but the servers' sums and updates (SGD).
//
//   servers_bench [--mebibytes 64] [--workers 1] [--servers 1] [--steps 8] [--rounds 5]
//
// Prints a row for each transport: the median over rounds of the bytes of pushes and pulls of all
// workers a second, and how that relates to the first transport's in the same round.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "atoll/param_server/connection.h"
#include "atoll/param_server/service.h"
#include "atoll/param_server/worker_loop.h"

namespace atl::bench {
namespace {

namespace ps = param_server;
using Clock = std::chrono::steady_clock;

struct Options {
  std::int64_t mebibytes = 64;
  int workers = 1;
  int servers = 1;
  std::int64_t steps = 8;
  int rounds = 5;
};

constexpr std::int64_t kSliceElements = (1 << 20) / sizeof(float);

ps::RunSpec spec_of(const Options& options) {
  ps::RunSpec spec;
  spec.identity = "bench";
  spec.consistency = ps::Consistency::kAsync;
  spec.num_lanes = spec.num_workers = options.workers;
  spec.num_servers = options.servers;
  spec.num_steps = options.steps + 1;  // the first one is not measured
  spec.num_elements = options.mebibytes * kSliceElements;
  spec.optimizer.kind = "sgd";
  spec.optimizer.values = {{"weight_decay", 0.0}, {"momentum", 0.0}, {"nesterov", false}};
  for (std::int64_t i = 0; i < options.mebibytes; ++i) {
    optim::ParamRange range{.begin = i * kSliceElements, .count = kSliceElements};
    range.value_begin = range.grad_begin = 0;
    spec.slices.push_back(
        {.begin = i * kSliceElements, .count = kSliceElements, .ranges = {range}});
  }
  return spec;
}

// One worker of a run, from its beginning to its end; the seconds of all steps but the first.
double work(const ps::RunSpec& spec, int number, const std::string& scheduler,
            const ps::LinkOptions& link) {
  const std::string gradient(kSliceElements * sizeof(float), '\0');
  std::string values(spec.slices.size() * gradient.size(), '\0');
  ps::Worker worker(number, spec.identity);
  if (number == 0) worker.offer(spec);
  ps::WorkerHooks hooks;
  hooks.state = [&](std::uint32_t slice) {
    return ps::Load{
        .slice = slice, .step = 0, .updates = 0, .values = gradient, .state = {gradient}};
  };
  hooks.take_values = [&](std::uint32_t slice, std::string_view from) {
    std::memcpy(values.data() + slice * gradient.size(), from.data(), from.size());
  };
  hooks.gradient = [&](std::uint32_t /*slice*/) { return gradient; };
  hooks.push_args = [](const ps::LaneAt& /*at*/) { return ps::PushArgs{.lr = 1, .scale = 1}; };
  hooks.take_state = [](const ps::State& /*state*/) {};
  ps::WorkerLoop loop(worker, {.consistency = spec.consistency, .num_slices = spec.slices.size()},
                      hooks);
  ps::WorkerConnection connection(worker, scheduler, link, 60);
  using What = ps::WorkerLoop::Job::What;
  Clock::time_point begin, end;
  for (;;) {
    const ps::WorkerLoop::Job job = loop.next();
    if (job.what == What::kEnd) break;
    if (job.what == What::kCompute) {
      if (job.at.step == 1) begin = Clock::now();
      loop.computed();
    } else if (job.what == What::kSave) {
      loop.saved();
    }
    if (loop.position() == spec.num_steps && end == Clock::time_point()) end = Clock::now();
    connection.pump(std::chrono::milliseconds(job.what == What::kWait ? 20 : 0));
  }
  connection.finish();
  return std::chrono::duration<double>(end - begin).count();
}

// GB/s of pushes and pulls of all workers.
double rate_over(ps::Transport transport, const Options& options) {
  const ps::RunSpec spec = spec_of(options);
  const ps::ListenOptions listen = {.listen = "127.0.0.1:0",
                                    .advertise = "",
                                    .link = {.transport = transport, .identity = {}, .secret = {}}};
  ps::SchedulerService scheduler(listen);
  std::vector<std::unique_ptr<ps::ServerService>> servers;
  for (int i = 0; i < options.servers; ++i) {
    servers.push_back(std::make_unique<ps::ServerService>(listen, scheduler.address(),
                                                          ps::DiskOptions{}, /*threads=*/1));
  }
  std::vector<double> seconds(static_cast<std::size_t>(options.workers));
  std::vector<std::thread> threads;
  for (int i = 0; i < options.workers; ++i) {
    threads.emplace_back([&, i] {
      seconds[static_cast<std::size_t>(i)] = work(spec, i, scheduler.address(), listen.link);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double longest = *std::max_element(seconds.begin(), seconds.end());
  // The first measured push follows a pull that is not.
  const double bytes = static_cast<double>(spec.num_elements) * sizeof(float) *
                       static_cast<double>(2 * options.steps - 1) * options.workers;
  return bytes / longest / 1e9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(const Options& options) {
  const std::vector<ps::Transport> transports = {ps::Transport::kGrpc, ps::Transport::kTcp};
  std::vector<std::vector<double>> rates(transports.size()), ratios(transports.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < transports.size(); ++i) {
      rates[i].push_back(rate_over(transports[i], options));
      ratios[i].push_back(rates[i].back() / rates[0].back());
    }
  }
  fmt::print("| transport | GB/s | over {} |\n|---|---|---|\n", ps::name_of(transports[0]));
  for (std::size_t i = 0; i < transports.size(); ++i) {
    fmt::print("| {} | {:.2f} | {:.2f} |\n", ps::name_of(transports[i]), median(rates[i]),
               median(ratios[i]));
  }
}

}  // namespace
}  // namespace atl::bench

int main(int argc, char** argv) {
  atl::bench::Options options;
  CLI::App app{"Push and pull of parameter servers, over each transport"};
  app.add_option("--mebibytes", options.mebibytes, "Of parameters")->capture_default_str();
  app.add_option("--workers", options.workers)->capture_default_str();
  app.add_option("--servers", options.servers)->capture_default_str();
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--rounds", options.rounds)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  atl::bench::run(options);
  return 0;
}
