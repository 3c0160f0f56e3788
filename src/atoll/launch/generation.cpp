#include "atoll/launch/generation.h"

#include <charconv>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/comm/mpi_needs.h"
#include "atoll/launch/mpirun.h"

namespace atl::launch {

std::pair<std::string, int> split_address(const std::string& address) {
  constexpr std::string_view kScheme = "tcp://";
  const std::size_t colon = address.rfind(':');
  if (address.starts_with(kScheme) && colon > kScheme.size()) {
    std::string host = address.substr(kScheme.size(), colon - kScheme.size());
    if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    std::uint16_t port = 0;
    const char* const end = address.data() + address.size();
    const auto [stopped, error] = std::from_chars(address.data() + colon + 1, end, port);
    if (error == std::errc() && stopped == end) return {host, port};
  }
  throw user_error("'{}' is no address of the form tcp://HOST:PORT", address);
}

int finish(const GroupOutcome& outcome) {
  switch (outcome.kind) {
    case GroupOutcome::Kind::kMistake:
      throw Error(ErrorKind::kUser, outcome.cause);
    case GroupOutcome::Kind::kFailed:
      throw Error(ErrorKind::kPeer, outcome.cause);
    case GroupOutcome::Kind::kDone:
    case GroupOutcome::Kind::kStopped:
      break;
  }
  return outcome.exit_code;
}

Generations::Generations(const std::string& backend, TrainCall call, const std::string& rendezvous,
                         bool has_remote, RanksHere here)
    : backend_(find_backend(backend)),
      call_(std::move(call)),
      here_(here),
      rendezvous_(rendezvous) {
  const std::string why_not = backend_.why_not_built ? backend_.why_not_built() : "";
  if (!why_not.empty()) throw user_error("{}", why_not);
  if (has_remote && !backend_.spans_hosts) {
    throw user_error("--backend={}: its ranks are on one host, and others are asked for; use {}",
                     backend_.name, default_backend(Bootstrap::kRendezvous).name);
  }
  if (backend_.is_started_by_mpirun()) {
    require_mpirun(backend_.name);
    comm::check_mpi_places(comm::mpi_places());
    return;
  }
  if (here_.first > 0) return;
  std::pair<std::string, int> place = {has_remote ? this_host() : "127.0.0.1", 0};
  if (!rendezvous.empty()) place = split_address(rendezvous);
  server_ = std::make_unique<comm::RendezvousServer>(place.first, place.second);
}

GroupEnd Generations::run(const std::vector<std::string>& hosts, const GroupOptions& options,
                          SignalFd& signals, const StartElsewhere& elsewhere) {
  if (backend_.is_started_by_mpirun()) {
    return run_group(mpirun_processes(call_, hosts, backend_.name), options, signals);
  }
  const RendezvousPoint point = {.rendezvous = this->rendezvous(),
                                 .generation = generation_++,
                                 .backend = backend_.name,
                                 .first = here_.first,
                                 .ranks = here_.ranks};
  return run_group(rendezvous_processes(call_, hosts, point, elsewhere), options, signals);
}

}  // namespace atl::launch
