#include "atoll/island/simulation/simulation.h"

#include <algorithm>
#include <limits>

#include "atoll/base/rng.h"

namespace atl::island {

namespace {

// Wrong states in a row for which an island is turned out.
constexpr int kMaxStrikes = 3;

// Draws in order.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : stream_(seed, RngPurpose::kSynthetic, 1) {}
  double uniform() { return stream_.uniform(next_++); }
  int between(int low, int high) {
    return low + static_cast<int>(uniform() * static_cast<double>(high - low + 1));
  }
  bool one_in(int count) { return between(1, count) == 1; }

 private:
  RngStream stream_;
  std::uint64_t next_ = 0;
};

// Asynchronous islands, or a policy, for half of all runs; and an island that measures nonsense.
void choose_algorithm(SimulationOptions& options, Dice& dice) {
  RunPlan& plan = options.plan;
  if (dice.one_in(4)) {
    plan.is_async = true;
    plan.num_fragments = 1;
    options.overlap = plan.inner_steps;
    return;
  }
  if (dice.one_in(4)) {
    plan.is_gossip = true;
    plan.num_fragments = 1;
    options.overlap = 0;
    return;
  }
  constexpr const char* kPolicies[] = {"fixed", "fixed", "qsr", "adacomm", "budget", "auto"};
  PolicyPlan& policy = plan.policy;
  policy.policy = kPolicies[dice.between(0, 5)];
  if (policy.policy == "fixed") return;
  policy.base = {
      .inner_steps = plan.inner_steps, .overlap = options.overlap, .codec = "f32", .outer_lr = 0.7};
  policy.min_inner_steps = std::max<std::int64_t>(1, plan.inner_steps / 4);
  policy.max_inner_steps = 4 * plan.inner_steps;
  policy.may_overlap = options.overlap > 0 && options.overlap < plan.inner_steps;
  policy.may_change_codec = dice.one_in(2);
  policy.may_change_lr = true;
  policy.parameters = options.parameters / plan.num_fragments;
  policy.fragments = plan.num_fragments;
  if (policy.policy == "budget" || dice.one_in(4)) policy.round_bytes = 5 * policy.parameters;
  if (!dice.one_in(3)) return;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kLies[] = {0,     -1,         1e-300,
                              1e300, -kInfinity, kInfinity,
                              1e-5,  1e4,        std::numeric_limits<double>::quiet_NaN()};
  options.liar = dice.between(0, options.num_islands - 1);
  options.lie = kLies[dice.between(0, 8)];
}

SimulationOptions random_faults(Dice& dice) {
  using Kind = SimulatedFault::Kind;
  SimulationOptions options;
  options.num_islands = dice.between(2, 6);
  options.plan.num_fragments = dice.between(1, 3);
  options.plan.inner_steps = dice.between(2, 10);
  const int outer_steps = dice.between(3, 8);
  options.plan.total_batches =
      outer_steps * options.plan.inner_steps * options.num_islands + dice.between(0, 3);
  options.plan.min_islands = dice.between(1, options.num_islands);
  options.plan.quorum = dice.one_in(4) ? dice.between(1, 2) : 0;
  options.plan.grace_seconds = 0.2 + dice.uniform();
  options.link.latency = 0.001 + 0.05 * dice.uniform();
  options.link.bits_per_second = 1e8;
  options.parameters = 1e5 + 2e6 * dice.uniform();
  options.overlap = dice.one_in(2) ? options.plan.inner_steps : 0;
  options.can_rebase = dice.one_in(2);
  options.checkpoint_every = dice.between(1, 3);
  options.out_after = 4 + 6 * dice.uniform();
  options.void_after = 5;
  options.max_seconds = 300;
  if (dice.one_in(3)) options.speeds = {1, 0.25, 0.5};
  const Seconds length = 1 + options.step_seconds * static_cast<double>(outer_steps) *
                                 static_cast<double>(options.plan.inner_steps);
  const int num_faults = dice.between(0, 6);
  bool has_leave = false;
  int num_wrong = 0;
  for (int i = 0; i < num_faults; ++i) {
    SimulatedFault fault;
    fault.kind = static_cast<Kind>(dice.between(0, static_cast<int>(Kind::kSlow)));
    fault.when = length * dice.uniform();
    fault.lasts = dice.one_in(2) ? 3 * dice.uniform() : 15 * dice.uniform();
    fault.island = dice.between(0, options.num_islands - 1);
    fault.other = (fault.island + 1) % options.num_islands;
    // These end the run for an island or for all, which is right and has tests of its own; who
    // leaves must leave somebody behind.
    if (fault.kind == Kind::kAlwaysFlips) fault.kind = Kind::kKillCoordinatorMidway;
    const bool is_wrong = fault.kind == Kind::kFlipResult || fault.kind == Kind::kNotFinite ||
                          fault.kind == Kind::kHugeNorm;
    if (is_wrong && ++num_wrong >= kMaxStrikes) fault.kind = Kind::kSlow;
    if (fault.kind == Kind::kFlipResult && options.num_islands < 3) fault.kind = Kind::kStop;
    if (fault.kind == Kind::kLeave && (has_leave || fault.island == 0)) fault.kind = Kind::kCrash;
    if (fault.kind == Kind::kLeave) {
      has_leave = true;
      options.plan.min_islands = std::min(options.plan.min_islands, options.num_islands - 1);
      options.plan.quorum = std::min(options.plan.quorum, options.num_islands - 1);
    }
    options.faults.push_back(fault);
  }
  if (dice.one_in(6)) options.link.queue = 4 * dice.uniform();
  if (options.overlap > 0 && dice.one_in(2)) {
    options.overlap = dice.between(1, static_cast<int>(options.plan.inner_steps));
  }
  return options;
}

}  // namespace

SimulationOptions random_fixed_simulation(std::uint64_t seed) {
  Dice dice(seed);
  return random_faults(dice);
}

SimulationOptions random_simulation(std::uint64_t seed) {
  Dice dice(seed);
  SimulationOptions options = random_faults(dice);
  choose_algorithm(options, dice);
  return options;
}

}  // namespace atl::island
