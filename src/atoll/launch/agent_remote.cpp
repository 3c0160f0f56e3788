// The part of Agent for ranks of other machines' agents, which join and leave.

#include <algorithm>
#include <utility>

#include "atoll/base/log.h"
#include "atoll/launch/agent.h"

namespace atl::launch {

namespace {

constexpr double kServerSeconds = 10;  // it is a thread of this process

}  // namespace

void Agent::open_agent_server(std::vector<std::string> agreement) {
  const std::string address = generations_.rendezvous();
  AgentServerOptions options = {.host = split_address(address).first,
                                .agreement = std::move(agreement),
                                .is_taken = [this](const std::string& name) {
                                  return std::any_of(
                                      hosts_.begin(), hosts_.end(),
                                      [&](const Host& host) { return host.name == name; });
                                }};
  agent_server_ = std::make_unique<AgentServer>(std::move(options));
  comm::open_rendezvous(address, kServerSeconds)
      ->set(agent_server_key(), std::to_string(agent_server_->port()));
  log::info("others may join: atoll launch --join={} ...", address);
}

// A host of the hostfile is reached by ssh, even if an agent had the same name before.
bool Agent::is_agent(const std::string& host) const {
  return agent_server_ && agent_server_->knows(host) &&
         std::none_of(hosts_.begin(), hosts_.end(),
                      [&](const Host& known) { return known.name == host; });
}

std::optional<RankProcess> Agent::process_of_agent(const std::string& host,
                                                   const RankOrder& order) {
  if (!is_agent(host)) return std::nullopt;
  return RankProcess{
      .rank = order.number, .reach = Reach::kAgent, .host = host, .start = [this, host, order] {
        return agent_server_->start(host, order);
      }};
}

void Agent::poll_agent_server() {
  if (agent_server_) {
    agent_server_->poll_agents();
    for (std::string& name : agent_server_->take_new_agents())
      new_agents_.push_back(std::move(name));
  }
  update_places();
}

void Agent::update_places() {
  std::vector<Host> all = hosts_;
  if (agent_server_) {
    for (Host& agent : agent_server_->agents()) {
      if (is_agent(agent.name)) all.push_back(std::move(agent));
    }
  }
  slots_.update(all);
}

// Whether agents have joined since the last call, and are not all at work already: those that came
// before the ranks began are. A warning says once that there is no room for them.
bool Agent::takes_newcomers() {
  std::vector<std::string> names = std::exchange(new_agents_, {});
  std::erase_if(names, [this](const std::string& name) { return !slots_.has_free(name); });
  for (const std::string& name : names) {
    const int present = rank_list_ ? rank_list_->num_processes() : slots_.num_taken();
    if (room() > 0) {
      log::info("{} offers ranks", name);
    } else if (present >= options_.limits.max_ranks) {
      log::warning("{} offers ranks, but there are --max-ranks={}; they wait until some are lost",
                   name, options_.limits.max_ranks);
    } else {
      log::warning("{} offers ranks, but the settings allow no number between {} and {}; they wait",
                   name, present, present + slots_.num_free());
    }
  }
  return !names.empty();
}

// Removes the ranks whose agent leaves, one after the other, between two steps. Two neighbours that
// leave together would take both copies of the same state with them. So the others must have
// regrouped before the next rank leaves; steps from before that may still be reported.
void Agent::let_go() {
  if (!agent_server_ || must_stop_) return;
  const std::vector<int> leaving = agent_server_->leaving();
  const auto is_dismissed = [this](int number) { return dismissed_.count(number) > 0; };
  if (leaving.empty() || std::any_of(leaving.begin(), leaving.end(), is_dismissed)) return;
  const int number = leaving.front();
  const int place = rank_list_->place_of(number);
  if (place < 0) return;  // it has been lost, and its end will be seen soon
  const int left = rank_list_->num_ranks() - 1;
  const int rank = rank_list_->rank_of(number);
  const bool is_listed = rank >= 0;
  if (is_listed && !rank_list_->is_settled()) return;
  if (is_listed && (left < options_.limits.min_ranks || !fits(left) || !can_lose(rank))) {
    must_stop_ = true;
    return;
  }
  dismissed_.insert(number);
  if (is_listed) {
    log::info("rank {} on {} leaves; going on in place with {} rank{}", rank,
              rank_list_->host_of(number), left, left == 1 ? "" : "s");
  }
  slots_.drop(place, /*is_gone=*/false);
  rank_list_->remove(number);
  // A rank that is listed learns from the next rank list that it has to leave; of a rank that has
  // not joined the others know nothing.
  if (!is_listed) agent_server_->end(number);
}

// Until there are --min-ranks, when others may join. Returns the signal that ended it; 0: none has.
int Agent::wait_for_ranks(SignalFd& signals) {
  if (!agent_server_) return 0;
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(config_.comm.timeout_s));
  bool is_told = false;
  for (;;) {
    poll_agent_server();
    const int missing = options_.limits.min_ranks - slots_.num_there();
    if (missing <= 0) return 0;
    if (!std::exchange(is_told, true)) {
      log::info("waiting until {} more rank{} join{}, for {} s at most", missing,
                missing == 1 ? "" : "s", missing == 1 ? "s" : "", config_.comm.timeout_s);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return 0;  // next() has none to give
    std::vector<pollfd> polls = {{.fd = signals.fd(), .events = POLLIN}};
    agent_server_->watch(polls);
    constexpr std::int64_t kMost = 1000;  // so that silent connections are dropped in time
    ::poll(polls.data(), polls.size(),
           static_cast<int>(std::min<std::int64_t>(left.count(), kMost)));
    const int signal = signals.next();
    if (signal != 0 && !signals.only_saves(signal)) return signal;
  }
}

}  // namespace atl::launch
