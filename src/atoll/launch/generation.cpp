#include "atoll/launch/generation.h"

#include <charconv>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/comm/gloo/world.h"
#include "atoll/comm/mpi/world.h"
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

Generations::Generations(std::string backend, TrainCall call, const std::string& rendezvous,
                         bool has_remote)
    : backend_(std::move(backend)), call_(std::move(call)) {
  if (backend_ == "mpi") {
    if (!comm::has_mpi()) {
      throw user_error(
          "this atoll was built without MPI; install libopenmpi-dev and build again, "
          "or use --backend=gloo");
    }
    require_mpirun();
    comm::check_mpi_places(comm::mpi_places());
    return;
  }
  if (backend_ == "gloo" && !comm::has_gloo()) {
    throw user_error(
        "this atoll was built without Gloo; install libgloo-dev and build again, or "
        "use --backend=tcp");
  }
  std::pair<std::string, int> place = {has_remote ? this_host() : "127.0.0.1", 0};
  if (!rendezvous.empty()) place = split_address(rendezvous);
  server_ = std::make_unique<comm::RendezvousServer>(place.first, place.second);
}

GroupEnd Generations::run(const std::vector<std::string>& hosts, const GroupOptions& options,
                          SignalFd& signals, const StartElsewhere& elsewhere) {
  if (backend_ == "mpi") return run_group(mpi_processes(call_, hosts), options, signals);
  const RendezvousPoint point = {
      .rendezvous = server_->address(), .generation = generation_++, .backend = backend_};
  return run_group(gloo_processes(call_, hosts, point, elsewhere), options, signals);
}

}  // namespace atl::launch
