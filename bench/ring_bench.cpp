// One rank of several that reduce over TCP, by each algorithm in turn. bench/ring.py starts them in
// network namespaces; by hand, on each host:
//
//   ring_bench --rank 0 --ranks 2 --rendezvous tcp://HOST:PORT
//
// Rank 0 prints a line of JSON: seconds of an all_reduce by algorithm, each the median of rounds.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "atoll/comm/rendezvous/rendezvous.h"
#include "atoll/comm/tcp/world.h"

namespace atl::bench {
namespace {

struct Options {
  int rank = 0;
  int ranks = 2;
  std::string rendezvous;
  std::vector<std::string> algorithms{"direct", "ring"};
  std::int64_t bytes = 16 << 20;
  int rounds = 5;
};

double seconds_of(comm::World& world, std::vector<float>& data) {
  const Tensor tensor(data.data(), {Dtype::kF32, {static_cast<std::int64_t>(data.size())}});
  world.all().barrier();
  const auto start = std::chrono::steady_clock::now();
  world.all().all_reduce(tensor);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  double most = took.count();
  world.all().all_reduce(Tensor(&most, {Dtype::kF64, {1}}), comm::Reduce::kMax);
  return most;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void run(const Options& options) {
  std::unique_ptr<comm::RendezvousServer> server;
  if (options.rank == 0) {
    const std::string host_and_port = options.rendezvous.substr(std::string("tcp://").size());
    const std::size_t colon = host_and_port.rfind(':');
    server = std::make_unique<comm::RendezvousServer>(host_and_port.substr(0, colon),
                                                      std::stoi(host_and_port.substr(colon + 1)));
  }
  std::vector<std::unique_ptr<comm::World>> worlds;
  for (const std::string& name : options.algorithms) {
    worlds.push_back(comm::open_tcp({.rank = options.rank,
                                     .size = options.ranks,
                                     .rendezvous = options.rendezvous,
                                     .generation = static_cast<int>(worlds.size()),
                                     .shared_memory = false},
                                    {.algorithm = comm::algorithm_named(name)}));
  }
  std::vector<float> data(static_cast<std::size_t>(options.bytes) / sizeof(float), 1e-6f);
  std::vector<std::vector<double>> seconds(worlds.size());
  for (int round = 0; round <= options.rounds; ++round) {
    for (std::size_t i = 0; i < worlds.size(); ++i) {
      const double took = seconds_of(*worlds[i], data);
      if (round > 0) seconds[i].push_back(took);
    }
  }
  if (options.rank != 0) return;
  std::vector<std::string> fields;
  for (std::size_t i = 0; i < worlds.size(); ++i)
    fields.push_back(fmt::format("\"{}\": {:.6f}", options.algorithms[i], median(seconds[i])));
  fmt::print("{{{}}}\n", fmt::join(fields, ", "));
}

}  // namespace
}  // namespace atl::bench

int main(int argc, char** argv) {
  CLI::App app("All-reduce over TCP, by algorithm: one rank of several");
  atl::bench::Options options;
  app.add_option("--rank", options.rank)->required();
  app.add_option("--ranks", options.ranks);
  app.add_option("--rendezvous", options.rendezvous, "tcp://HOST:PORT, which rank 0 opens")
      ->required()
      ->check([](const std::string& text) {
        return text.starts_with("tcp://") && text.rfind(':') > 6 ? "" : "not tcp://HOST:PORT";
      });
  app.add_option("--algorithms", options.algorithms, "direct, ring, hierarchical, auto");
  app.add_option("--bytes", options.bytes, "of data")->check(CLI::Range(4, 1 << 30));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  try {
    atl::bench::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
