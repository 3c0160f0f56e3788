#include "atoll/comm/collectives/algorithms.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/base/log.h"

namespace atl::comm {

namespace {

// Below it the time of a message counts more than its bytes, and a ring has most messages in a row.
constexpr std::size_t kLeastBytes = std::size_t{64} << 10;
// Calls of each candidate. The first may open connections and make room, so it does not count.
constexpr int kTrials = 4;

/// Of all ranks together; the same on all of them.
std::size_t bytes_of(const Collective& collective) {
  if (collective.op != Op::kReduceScatter) return collective.data.bytes();
  return static_cast<std::size_t>(collective.parts.back()) * dtype_size(collective.result.dtype());
}

/// What has trials of its own: the same on all ranks of the group, which call it in one order.
std::uint64_t key_of(const Collective& collective) {
  const std::uint64_t group = make_header(collective).group;
  const auto size = static_cast<std::uint64_t>(std::bit_width(bytes_of(collective)));
  return (group & ~std::uint64_t{0xffff}) | size << 8 | static_cast<std::uint64_t>(collective.op);
}

}  // namespace

Algorithms::Algorithms(const WorldOptions& options, Transport* transport)
    : options_(options), transport_(transport), by_messages_(transport), by_ring_(transport) {}

void Algorithms::find_nodes(const Collective& collective, bool by_host) {
  if (!by_host) return nodes_.of_ranks(collective.size());
  hosts_.clear();
  for (const int member : collective.members) hosts_.push_back(transport_->host(member));
  nodes_.of_hosts(hosts_);
}

void Algorithms::run_direct(const Collective& collective) {
  if (!transport_->run(collective)) by_messages_.run(collective);
}

void Algorithms::run_by(Algorithm algorithm, const Collective& collective) {
  if (algorithm == Algorithm::kDirect) return run_direct(collective);
  find_nodes(collective, algorithm == Algorithm::kHierarchical);
  // One host: its ranks read each other's memory.
  if (nodes_.size() == 1) return run_direct(collective);
  by_ring_.run(collective, nodes_);
}

Algorithms::Trials* Algorithms::trials_of(const Collective& collective) {
  if (collective.op == Op::kBarrier || bytes_of(collective) < kLeastBytes) return nullptr;
  Trials& trials = trials_[key_of(collective)];
  if (!trials.candidates.empty()) return &trials;
  find_nodes(collective, true);
  trials.candidates = {Algorithm::kDirect};
  if (nodes_.size() > 2 || (nodes_.size() == 2 && collective.size() > 2)) {
    const bool shares_hosts = nodes_.size() < collective.size();
    trials.candidates.push_back(shares_hosts ? Algorithm::kHierarchical : Algorithm::kRing);
  } else {
    trials.chosen = Algorithm::kDirect;
  }
  trials.seconds.assign(trials.candidates.size(), std::numeric_limits<double>::infinity());
  return &trials;
}

void Algorithms::run(const Collective& collective) {
  if (!RingCollectives::can_run(collective)) return run_direct(collective);
  if (options_.algorithm != Algorithm::kAuto) return run_by(options_.algorithm, collective);
  Trials* trials = trials_of(collective);
  if (trials == nullptr) return run_direct(collective);
  if (trials->chosen != Algorithm::kAuto) return run_by(trials->chosen, collective);
  try_algorithms(collective, *trials);
}

void Algorithms::try_algorithms(const Collective& collective, Trials& trials) {
  const auto num_candidates = static_cast<int>(trials.candidates.size());
  const auto turn = static_cast<std::size_t>(trials.calls % num_candidates);
  const auto start = std::chrono::steady_clock::now();
  run_by(trials.candidates[turn], collective);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (trials.calls >= num_candidates)
    trials.seconds[turn] = std::min(trials.seconds[turn], took.count());
  if (++trials.calls == kTrials * num_candidates) agree(collective, trials);
}

// The rank that came last has waited for nobody, so of all ranks' times the least says most about
// the links.
void Algorithms::agree(const Collective& collective, Trials& trials) {
  Collective least;
  least.op = Op::kAllReduce;
  least.sequence = collective.sequence;
  least.members = collective.members;
  least.self = collective.self;
  least.reduce = Reduce::kMin;
  least.group = collective.group;
  least.where = collective.where;
  const auto count = static_cast<std::int64_t>(trials.seconds.size());
  least.data = Tensor(trials.seconds.data(), {Dtype::kF64, {count}});
  run_direct(least);
  const auto best = std::min_element(trials.seconds.begin(), trials.seconds.end());
  trials.chosen = trials.candidates[static_cast<std::size_t>(best - trials.seconds.begin())];
  if (collective.self != 0) return;
  std::string times;
  for (std::size_t i = 0; i < trials.seconds.size(); ++i)
    times += fmt::format("{}{} {:.2f} ms", i == 0 ? "" : ", ", algorithm_name(trials.candidates[i]),
                         trials.seconds[i] * 1e3);
  log::info("comm.algorithm = auto: {} of {:.2f} MiB in {} goes {} ({})", op_name(collective.op),
            static_cast<double>(bytes_of(collective)) / (1 << 20), collective.group,
            trials.chosen == Algorithm::kDirect ? "directly"
            : trials.chosen == Algorithm::kRing ? "round a ring"
                                                : "by hosts",
            times);
}

}  // namespace atl::comm
