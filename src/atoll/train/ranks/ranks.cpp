#include "atoll/train/ranks/ranks.h"

#include <algorithm>
#include <tuple>

#include "atoll/train/ranks/sharing.h"

namespace atl::train {

namespace {

// How often shares may change, and how much of a step a change must save: each costs the
// micro-batches that were read ahead.
constexpr std::int64_t kBalanceEvery = 10;
constexpr double kWorthIt = 0.05;
constexpr double kSmoothing = 0.2;

std::vector<comm::Axis> axes_of(const comm::World& world, const TrainConfig& config) {
  const auto tensor = static_cast<int>(config.parallel.tp);
  const auto pipeline = static_cast<int>(config.parallel.pp);
  const auto expert = static_cast<int>(config.parallel.ep);
  const parallel::DataParallelOptions options = sharing_options(config, world.size(), world.rank());
  // One order of calls: copies reduce what the shards of each have just reduced. Ranks that share
  // products talk most, so they are neighbours; next come those that share experts.
  return {{"replicate", options.replicas, "dp"},
          {"shard", options.num_ranks, "dp"},
          {.name = "pp", .size = pipeline, .point_to_point = true},
          {"ep", expert},
          {"tp", tensor}};
}

// Seconds until the slowest rank is done.
double makespan(const std::vector<double>& seconds, const parallel::MicroBatchPlan& plan) {
  double longest = 0;
  for (std::size_t r = 0; r < seconds.size(); ++r) {
    longest = std::max(longest, seconds[r] * static_cast<double>(plan.share(static_cast<int>(r))));
  }
  return longest;
}

}  // namespace

std::vector<std::int64_t> balanced_shares(std::int64_t num_micro_batches,
                                          const std::vector<double>& seconds) {
  std::vector<std::int64_t> shares(seconds.size(), 1);
  for (auto left = num_micro_batches - static_cast<std::int64_t>(seconds.size()); left > 0;
       --left) {
    std::size_t best = 0;
    for (std::size_t r = 1; r < seconds.size(); ++r) {
      const auto end = [&](std::size_t at) {
        return seconds[at] * static_cast<double>(shares[at] + 1);
      };
      if (end(r) < end(best)) best = r;
    }
    ++shares[best];
  }
  return shares;
}

Ranks::Ranks(comm::World& world, const TrainConfig& config)
    : world_(world),
      mesh_(world, axes_of(world, config)),
      tensor_size_(static_cast<int>(config.parallel.tp)),
      expert_size_(static_cast<int>(config.parallel.ep)),
      plan_(config.train.batch_size / config.train.micro_batch,
            data_parallel_ranks(config, world.size())),
      balances_(config.dp.balance && world.size() > 1),
      micro_batch_seconds_(static_cast<std::size_t>(world.size()), 0) {
  const auto stages = static_cast<int>(config.parallel.pp);
  const int parts = tensor_size_ * expert_size_;
  const int of_one_model = parts * stages;
  const auto contexts = static_cast<int>(config.parallel.cp);
  if (of_one_model * contexts == 1) return;
  const auto every = [&](int first, int step, int end) {
    std::vector<int> members;
    for (int r = first; r < end; r += step) members.push_back(r);
    return members;
  };
  const int me = world.rank();
  const std::vector<int> sharing = every(me % of_one_model, of_one_model, world.size());
  comm::Channel& channel = world.channel("dp", sharing);
  if (expert_size_ > 1 || contexts > 1) sharing_ = world.group(sharing, "sharing", channel);
  if (contexts > 1) {
    const int first = me / (of_one_model * contexts) * of_one_model * contexts + me % of_one_model;
    const std::vector<int> context = every(first, of_one_model, first + of_one_model * contexts);
    context_ = world.group(context, "cp", world.channel("cp", context));
  }
  if (expert_size_ == 1) {
    data_ =
        world.group(every(me % (of_one_model * contexts), of_one_model * contexts, world.size()),
                    "dp", channel);
    return;
  }
  if (tensor_size_ > 1) {
    const int first = me / parts * parts;
    const std::vector<int> members = every(first, 1, first + parts);
    parts_ = world.group(members, "parts", world.channel("parts", members));
  }
  if (tensor_size_ * stages * contexts == 1) return;  // all ranks have other micro-batches
  std::vector<int> members;
  const auto place = [&](int r) {
    return std::tuple(r % tensor_size_, r / parts % stages, r / of_one_model % contexts);
  };
  for (int r = 0; r < world.size(); ++r) {
    if (place(r) == place(me)) members.push_back(r);
  }
  data_ = world.group(members, "data", world.channel("data", members));
}

std::unique_ptr<comm::Group> Ranks::pipeline_ends() {
  const std::vector<int>& members = pipeline().members();
  if (rank() != members.front() && rank() != members.back()) return nullptr;
  return world_.group({members.front(), members.back()}, "ends", world_.channel("pp", members));
}

std::unique_ptr<comm::Group> Ranks::kv_copies(const nn::Axis& axis) {
  std::vector<int> members;
  for (int r = 0; r < axis.size; ++r) members.push_back(rank() - axis.rank + r);
  return world_.group(members, "kv", world_.channel("tp", tensor().members()));
}

comm::Group* Ranks::replicate() {
  comm::Group& group = mesh_.group("replicate");
  return group.size() > 1 ? &group : nullptr;
}

std::uint64_t Ranks::data_bytes_sent() {
  const comm::Group* copies = replicate();
  return shard().traffic().sent + (copies == nullptr ? 0 : copies->traffic().sent);
}

std::vector<RankFacts> Ranks::gather(const RankFacts& mine) {
  static_assert(sizeof(RankFacts) % sizeof(double) == 0);
  constexpr std::int64_t kWidth = sizeof(RankFacts) / sizeof(double);
  std::vector<RankFacts> all(static_cast<std::size_t>(size()));
  all[static_cast<std::size_t>(rank())] = mine;
  if (is_alone()) return all;
  const std::int64_t count = kWidth * size();
  std::vector<std::int64_t> parts;
  for (std::int64_t at = 0; at <= count; at += kWidth) parts.push_back(at);
  group().all_gather({all.data(), {Dtype::kF64, {count}}}, parts);
  return all;
}

bool Ranks::balance(const std::vector<RankFacts>& facts) {
  if (!balances_ || plan_.num_micro_batches() < size()) return false;
  for (std::size_t r = 0; r < facts.size(); ++r) {
    double& mean = micro_batch_seconds_[r];
    const double now = facts[r].compute_seconds;
    mean = mean == 0 ? now : (1 - kSmoothing) * mean + kSmoothing * now;
  }
  if (++steps_since_ < kBalanceEvery) return false;
  steps_since_ = 0;
  const parallel::MicroBatchPlan wanted(
      balanced_shares(plan_.num_micro_batches(), micro_batch_seconds_));
  const double now = makespan(micro_batch_seconds_, plan_);
  if (now - makespan(micro_batch_seconds_, wanted) < kWorthIt * now) return false;
  plan_ = wanted;
  return true;
}

}  // namespace atl::train
