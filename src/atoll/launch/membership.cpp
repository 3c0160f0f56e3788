#include "atoll/launch/membership.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/launch/rank_main.h"

namespace atl::launch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::milliseconds(2);
// How long a rank that has lost a peer waits for the next rank list: the launch sees at once that a
// process has ended, and within seconds that a host is gone.
constexpr double kRankListSeconds = 20;
// How long ranks of one list may take to connect: all were ready when the list was written.
constexpr double kConnectSeconds = 5;
// How often the lead rank looks for a newer rank list, which takes some 0.1 ms.
constexpr auto kAskEvery = std::chrono::milliseconds(200);

Clock::time_point after(double seconds) {
  constexpr double kYear = 3.2e7;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::min(seconds, kYear)));
}

const Backend& regrouping_backend(const std::string& name) {
  const Backend& backend =
      name.empty() ? default_backend(Bootstrap::kRendezvous) : find_backend(name);
  if (backend.can_regroup) return backend;
  throw user_error(
      "--backend={}: its ranks cannot regroup when some die or come; leave --member out",
      backend.name);
}

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

}  // namespace

LaunchMembership::LaunchMembership(MembershipOptions options,
                                   const comm::WorldOptions& world_options)
    : options_(std::move(options)),
      backend_(regrouping_backend(options_.backend)),
      world_options_(world_options),
      rendezvous_(comm::open_rendezvous(options_.rendezvous, world_options.timeout_s)),
      generation_(options_.generation - 1) {}

// Compares this rank's settings with those that the training ranks have published.
void LaunchMembership::get_ready() {
  std::istringstream lines(rendezvous_->wait(agreement_key(), kRankListSeconds));
  std::vector<std::string> theirs;
  for (std::string line; std::getline(lines, line);) theirs.push_back(line);
  check_agreement(options_.agreement, theirs, "the rank that joins");
  rendezvous_->set(ready_key(options_.number), "");
}

std::unique_ptr<comm::World> LaunchMembership::next() {
  const bool is_first = std::exchange(is_first_, false);
  if (is_first && options_.joins) get_ready();
  for (std::string why;;) {
    const std::vector<ListedRank> ranks = next_rank_list(why);
    if (!come_together(ranks)) continue;
    std::unique_ptr<comm::World> world;
    try {
      world = open(ranks);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kPeer) throw;
      why = error.what();  // another rank has ended; the next rank list is without it
      continue;
    }
    if (is_first && !options_.joins) {
      agree_on(*world, options_.agreement);
      if (world->rank() == 0) rendezvous_->set(agreement_key(), join_lines(options_.agreement));
    }
    return world;
  }
}

// The newest rank list after the last one that was read.
std::vector<ListedRank> LaunchMembership::next_rank_list(const std::string& why) {
  const double timeout_s = was_listed_ ? kRankListSeconds : world_options_.timeout_s;
  const Clock::time_point deadline = after(timeout_s);
  for (;;) {
    std::optional<std::string> newest;
    while (std::optional<std::string> text = rendezvous_->get(rank_list_key(generation_ + 1))) {
      ++generation_;
      newest = std::move(text);
    }
    if (newest) {
      std::vector<ListedRank> ranks = parse_rank_list(*newest);
      if (std::any_of(ranks.begin(), ranks.end(), [this](const ListedRank& listed) {
            return listed.number == options_.number;
          })) {
        was_listed_ = true;
        return ranks;
      }
      if (was_listed_ || ranks.empty()) {
        throw make_error(ErrorKind::kPeer, "the ranks do not go on without those that are lost");
      }
    }
    if (Clock::now() >= deadline) {
      throw make_error(ErrorKind::kPeer, "nobody said within {} s which ranks go on{}{}", timeout_s,
                       why.empty() ? "" : "; ", why);
    }
    std::this_thread::sleep_for(kPoll);
  }
}

bool LaunchMembership::is_outdated() {
  return rendezvous_->get(rank_list_key(generation_ + 1)).has_value();
}

// Waits until all ranks of the list are here; some come late, from the middle of a step. False: a
// rank has ended, and there is a newer list.
bool LaunchMembership::come_together(const std::vector<ListedRank>& ranks) {
  const Clock::time_point deadline = after(world_options_.timeout_s);
  rendezvous_->set(here_key(generation_, options_.number), "");
  for (std::size_t rank = 0; rank < ranks.size();) {
    if (rendezvous_->get(here_key(generation_, ranks[rank].number))) {
      ++rank;
      continue;
    }
    if (is_outdated()) return false;
    if (Clock::now() >= deadline) {
      throw make_error(ErrorKind::kPeer, "rank {} of {} did not come to regroup within {} s", rank,
                       ranks.size(), world_options_.timeout_s);
    }
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

std::unique_ptr<comm::World> LaunchMembership::open(const std::vector<ListedRank>& ranks) {
  const auto mine = std::find_if(ranks.begin(), ranks.end(), [this](const ListedRank& listed) {
    return listed.number == options_.number;
  });
  comm::WorldOptions options = world_options_;
  options.local_ranks =
      static_cast<int>(std::count_if(ranks.begin(), ranks.end(), [&](const ListedRank& listed) {
        return listed.host == mine->host;
      }));
  const auto rank = static_cast<int>(mine - ranks.begin());
  const auto size = static_cast<int>(ranks.size());
  return backend_.open({.rank = rank,
                        .size = size,
                        .rendezvous = options_.rendezvous,
                        .generation = generation_,
                        .connect_timeout_s = kConnectSeconds},
                       options);
}

// Asked after a step, which all ranks of this generation have taken then.
bool LaunchMembership::wants_change() {
  if (std::exchange(settled_, generation_) != generation_) {
    rendezvous_->set(settled_key(generation_), "");
  }
  const Clock::time_point now = Clock::now();
  if (now - asked_ < kAskEvery) return false;
  asked_ = now;
  return is_outdated();
}

}  // namespace atl::launch
