#include "atoll/launch/agent.h"

#include <algorithm>
#include <utility>

#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/train/config/compress.h"
#include "atoll/train/ranks/sharing.h"

namespace atl::launch {

namespace {

// How often ranks that are to join are asked whether they are ready.
constexpr std::chrono::milliseconds kAskEvery{50};
constexpr int kSignalled = 128;

std::string count_ranks(int num_ranks) {
  return counted(num_ranks, "rank");
}

// Where a backend's ranks cannot regroup, as over MPI, the loss of one ends the others. State that
// only the lost rank held is then in the checkpoint only, as are, without copies, the stages,
// experts and parts of products that a rank alone has. State in a file is too large for the copy in
// memory that it would pass through. What a lost rank still owed is in the checkpoint too. Ranks
// with GPUs start again from it.
bool outlive_others(const LaunchOptions& options, const train::TrainConfig& config) {
  const bool has_whole_state = !config.parallel.has_parts() && config.dp.zero == 0;
  return find_backend(options.backend).can_regroup && config.device.kind == "cpu" &&
         config.offload.optimizer == "none" && !train::is_compressed(config) &&
         (config.launch.replicate || has_whole_state);
}

}  // namespace

std::vector<Host> read_hosts(const LaunchOptions& options) {
  if (options.hostfile.empty()) {
    const int slots = options.slots > 0 ? options.slots : options.limits.max_ranks;
    return {{.name = "", .slots = slots}};
  }
  std::vector<Host> hosts = read_hostfile(options.hostfile);
  for (Host& host : hosts) {
    if (is_this_host(host.name)) host.name.clear();
  }
  return hosts;
}

Agent::Agent(const LaunchOptions& options, const train::TrainConfig& config,
             std::vector<std::string> agreement, const std::vector<Host>& hosts,
             Generations& generations)
    : options_(options),
      config_(config),
      slots_(hosts, options.limits, /*may_wait=*/!options.rendezvous.empty()),
      generations_(generations),
      hosts_(hosts) {
  if (outlive_others(options, config)) rank_list_.emplace(generations.rendezvous());
  if (!options.rendezvous.empty()) open_agent_server(std::move(agreement));
}

int Agent::run(SignalFd& signals) {
  try {
    const int code = run_all(signals);
    if (agent_server_) agent_server_->bye(code, "");
    return code;
  } catch (const Error& error) {
    if (agent_server_) agent_server_->bye(error.exit_code(), error.what());
    throw;
  }
}

LaunchStatus Agent::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Agent::note_status(int num_ranks) {
  const std::lock_guard lock(mutex_);
  status_.ranks = num_ranks;
  status_.places = slots_.num_there();
  status_.restarts = restarts_;
}

void Agent::note_losses(int count) {
  const std::lock_guard lock(mutex_);
  status_.losses += count;
}

int Agent::run_all(SignalFd& signals) {
  std::optional<GroupOutcome> before;  // how the last group failed
  for (;;) {
    if (const int signal = wait_for_ranks(signals)) return kSignalled + signal;
    std::vector<std::string> hosts = slots_.next();
    if (hosts.empty()) {
      throw make_error(ErrorKind::kPeer, "{}; fewer than --min-ranks={} are left",
                       before ? before->cause : "places for ranks are gone",
                       options_.limits.min_ranks);
    }
    const int num_ranks = fitting(static_cast<int>(hosts.size()));
    if (!std::exchange(has_begun_, true)) {
      tell_of_fewer(num_ranks, static_cast<int>(hosts.size()));
    }
    hosts.resize(static_cast<std::size_t>(num_ranks));
    slots_.trim(num_ranks);
    if (before) announce(*before, "from the newest checkpoint", num_ranks);
    lost_at_step_ = -1;
    lost_in_place_ = 0;
    {
      const std::lock_guard lock(mutex_);
      ++status_.groups;
    }
    note_status(num_ranks);
    const GroupEnd end = run_group_of(hosts, signals);
    GroupOutcome outcome = outcome_of(end);
    if (outcome.kind == GroupOutcome::Kind::kFailed) {
      const int lost = static_cast<int>(outcome.lost.size());
      note_losses(std::max(0, lost - lost_in_place_));
    }
    note_status(0);
    if (options_.on_lost && !outcome.lost.empty() && end.stop_signal == 0) {
      options_.on_lost(end.last_step(), outcome.cause);
    }
    before.reset();
    // The group ends because nobody holds the lost state; that loss was counted when it happened.
    const int more = is_new_loss(end.step) ? 1 : 0;
    if (outcome.kind == GroupOutcome::Kind::kStopped && end.was_wanted) {
      log::info("starting again from the checkpoint {}",
                must_stop_ ? "without the ranks that leave" : "with more ranks");
    } else if (outcome.kind == GroupOutcome::Kind::kFailed && end.stop_signal != 0 &&
               !end.was_wanted) {
      return finish(outcome);  // the user asked to stop, so nothing is restarted
    } else if (outcome.kind == GroupOutcome::Kind::kFailed &&
               restarts_ + more <= options_.limits.max_restarts) {
      restarts_ += more;
      slots_.lose(outcome);
      before = std::move(outcome);
    } else {
      return give_up(outcome);
    }
    look_at_hostfile();
  }
}

// The most of `num_ranks` that the settings allow: they are a multiple of parallel.tp, for one.
int Agent::fitting(int num_ranks) const {
  for (int fewer = num_ranks;; --fewer) {
    try {
      train::check_ranks(config_, fewer);
      return fewer;
    } catch (const Error&) {
      if (fewer == options_.limits.min_ranks) throw;
    }
  }
}

bool Agent::fits(int num_ranks) const {
  return why_not(num_ranks).empty();
}

std::string Agent::why_not(int num_ranks) const {
  try {
    train::check_ranks(config_, num_ranks);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Says once why there will be fewer ranks than asked for. Where agents may join, a launch is
// expected to begin with fewer.
void Agent::tell_of_fewer(int num_ranks, int num_places) const {
  const int asked = options_.limits.max_ranks;
  if (num_ranks < num_places) {
    log::warning("beginning with {} instead of {}: {}", count_ranks(num_ranks), num_places,
                 why_not(num_places));
  } else if (num_places < asked && !agent_server_) {
    log::warning("beginning with {} instead of --max-ranks={}: {} has no more slots",
                 count_ranks(num_ranks), asked, options_.hostfile);
  }
}

// Only the lead rank of an island holds the state that islands exchange.
bool Agent::can_lose(int rank) const {
  return rank != 0 || config_.island.coordinator.empty();
}

// Losses count as one until the ranks have taken a new step together. The step that was under way
// at the first loss may still be reported in between.
bool Agent::is_new_loss(std::int64_t step) const {
  return lost_at_step_ < 0 || step > lost_at_step_ + 1;
}

GroupEnd Agent::run_group_of(const std::vector<std::string>& hosts, SignalFd& signals) {
  grows_at_ = Clock::now() + regrow_after();
  must_stop_ = false;
  if (rank_list_) return run_in_place(hosts, signals);
  GroupOptions watch;
  if (options_.regrow_after_s > 0 || agent_server_)
    watch.wants_to_stop = [this] { return wants_to_grow(); };
  if (agent_server_) watch.ask_every = kAskEvery;
  return generations_.run(hosts, watch, signals,
                          [this](const std::string& host, const RankOrder& order) {
                            return process_of_agent(host, order);
                          });
}

GroupEnd Agent::run_in_place(const std::vector<std::string>& hosts, SignalFd& signals) {
  rank_list_->begin(hosts);
  dismissed_.clear();
  has_lost_ = is_saving_ = false;
  std::vector<RankProcess> processes;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    processes.push_back(process_on(hosts[rank], {.number = static_cast<int>(rank),
                                                 .generation = rank_list_->generation(),
                                                 .backend = options_.backend}));
  }
  const bool stays = !config_.parallel.has_parts();
  const GroupOptions watch = {.wants_to_stop =
                                  [this, stays] {
                                    if (stays) return must_stop_;
                                    return !is_saving_ && wants_to_grow();
                                  },
                              .policy = this,
                              .ask_every = kAskEvery};
  GroupEnd end = run_group(processes, watch, signals);
  for (RankEnd& rank : end.ranks) rank.rank = rank_list_->rank_of(rank.rank);
  return end;
}

RankProcess Agent::process_on(const std::string& host, const RankOrder& order) {
  if (std::optional<RankProcess> process = process_of_agent(host, order))
    return *std::move(process);
  return elastic_process(generations_.call(), host, generations_.rendezvous(), order);
}

// Called when a process has failed. When it returns false, the ranks of the last list keep their
// places.
bool Agent::goes_on_without(const RankEnd& end, std::int64_t step) {
  if (dismissed_.count(end.rank) > 0) return true;
  RankEnd known = end;
  known.rank = rank_list_->rank_of(end.rank);
  const GroupOutcome outcome = outcome_of({.ranks = {known}, .step = step});
  if (known.rank < 0) {
    log::warning("a rank that was to join did not ({}); going on without it",
                 end.report ? end.report->error : fmt::format("pid {}", end.pid));
  } else {
    // An error of a rank's own, such as a full disk, usually meets all ranks.
    const bool is_lost = !outcome.lost.empty();
    const int left = rank_list_->num_ranks() - 1;
    const int more = is_new_loss(step) ? 1 : 0;
    // Ranks that have parts of the model only save what they have, before all start again.
    const bool stays = !config_.parallel.has_parts();
    const bool is_enough = stays ? left >= options_.limits.min_ranks && fits(left) : left > 0;
    if (!is_lost || !can_lose(known.rank) || step < 0 || !is_enough ||
        restarts_ + more > options_.limits.max_restarts) {
      rank_list_->dissolve();
      return false;
    }
    restarts_ += more;
    lost_at_step_ = step;
    is_saving_ = !stays;
    if (stays) announce(outcome, "in place", left);
    if (!stays) {
      log::warning("{}; {} what there is of the last step in memory", outcome.cause,
                   left == 1 ? "the other saves" : fmt::format("the other {} save", left));
    }
  }
  slots_.drop(rank_list_->place_of(end.rank), !outcome.gone.empty());
  rank_list_->remove(end.rank);
  has_lost_ = agent_server_ != nullptr;
  grows_at_ = Clock::now() + regrow_after();
  ++lost_in_place_;
  note_losses(1);
  note_status(rank_list_->num_ranks());
  return true;
}

// Called while ranks train, so it must not wait.
std::vector<RankProcess> Agent::joining(std::int64_t step) {
  if (rank_list_->admit() > 0) note_status(rank_list_->num_ranks());
  poll_agent_server();
  if (step < 0 || config_.parallel.has_parts()) return {};  // those start again with more
  let_go();
  if (takes_newcomers()) return grow(room());
  if (std::exchange(has_lost_, false)) return grow(std::min(room(), slots_.num_spare()));
  if (options_.regrow_after_s <= 0 || !looks_for_room()) return {};
  return grow(room());
}

std::vector<RankProcess> Agent::grow(int most) {
  std::vector<RankProcess> processes;
  for (const std::string& host : slots_.grow(most)) {
    processes.push_back(process_on(host, {.number = rank_list_->expect(host),
                                          .joins = true,
                                          .generation = rank_list_->generation() + 1,
                                          .backend = options_.backend}));
  }
  if (!processes.empty()) {
    log::info("starting {} to join the {} that train",
              count_ranks(static_cast<int>(processes.size())), rank_list_->num_ranks());
  }
  return processes;
}

void Agent::announce(const GroupOutcome& outcome, const std::string& from, int num_ranks) const {
  log::warning("{}; going on {} with {} (restart {} of {})", outcome.cause, from,
               count_ranks(num_ranks), restarts_, options_.limits.max_restarts);
}

int Agent::give_up(GroupOutcome outcome) const {
  if (outcome.kind == GroupOutcome::Kind::kFailed && options_.limits.max_restarts > 0) {
    outcome.cause +=
        fmt::format("; all restarts are used up (--max-restarts={})", options_.limits.max_restarts);
  }
  return finish(outcome);
}

Agent::Clock::duration Agent::regrow_after() const {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options_.regrow_after_s));
}

// Whether it is time to look for free places. Hosts are probed in the background.
bool Agent::looks_for_room() {
  if (probe_.done()) slots_.return_hosts(probe_.take());
  if (Clock::now() < grows_at_) return false;
  grows_at_ = Clock::now() + regrow_after();
  look_at_hostfile();
  if (!slots_.gone().empty()) probe_.start(slots_.gone());
  return true;
}

// For a group whose ranks cannot change: whether to stop it, so that a larger one can start.
bool Agent::wants_to_grow() {
  poll_agent_server();
  must_stop_ = agent_server_ && !agent_server_->leaving().empty();
  if (must_stop_) return true;
  const bool is_time = options_.regrow_after_s > 0 && looks_for_room();
  return (takes_newcomers() || is_time) && room() > 0;
}

// How many more ranks there could be, with a number of ranks that the settings allow.
int Agent::room() const {
  const int present = rank_list_ ? rank_list_->num_processes() : slots_.num_taken();
  int wanted = rank_list_ ? present + slots_.num_free() : slots_.num_next();
  while (wanted > present && !fits(wanted)) --wanted;
  return std::max(0, wanted - present);
}

// A file that is being edited may be damaged for a moment; the places stay as they were then.
void Agent::look_at_hostfile() {
  if (!options_.hostfile.empty()) {
    try {
      hosts_ = read_hosts(options_);
    } catch (const Error& error) {
      log::warning("{}; going on with the hosts as they were", error.what());
    }
  }
  poll_agent_server();
}

}  // namespace atl::launch
