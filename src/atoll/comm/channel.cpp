#include "atoll/comm/channel.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/comm/alone.h"
#include "atoll/comm/failure.h"
#include "atoll/comm/gpu_transport.h"
#include "atoll/comm/world_state.h"

namespace atl::comm {

Channel::Channel(World::State& world, std::string name, std::vector<int> members,
                 std::unique_ptr<Transport> transport)
    : world_(world),
      name_(std::move(name)),
      members_(std::move(members)),
      transport_(std::move(transport)),
      takes_gpu_memory_(dynamic_cast<GpuTransport*>(transport_.get()) != nullptr),
      algorithms_(world.options, transport_.get()),
      worker_([this](const Collective& collective, std::uint64_t number) {
        carry_out_queued(collective, number);
      }) {}

bool Channel::is_staged(const Collective& collective) const {
  return !takes_gpu_memory_ && needs_staging(collective);
}

void Channel::run(const Collective& collective) {
  if (is_staged(collective)) return run_staged(collective);
  run_here(collective);
}

void Channel::run_staged(const Collective& collective) {
  run_here(staging_.bring(collective));
  staging_.take_back(collective);
}

void Channel::run_here(const Collective& collective) {
  if (!worker_.idle()) worker_.wait_idle();
  world_.check_whole();
  if (collective.size() == 1) return run_alone(collective);
  carry_out(collective, world_.recorder.begun(collective));
}

Work Channel::start(const Collective& collective) {
  // What comes back has to be copied on the caller's thread, and the next call may read it.
  if (is_staged(collective)) {
    run_staged(collective);
    return Work();
  }
  const bool alone = collective.size() == 1;
  if (alone && worker_.idle()) {
    world_.check_whole();
    run_alone(collective);
    return Work();
  }
  const std::uint64_t number = alone ? 0 : world_.recorder.queued(collective);
  return worker_.push(collective, number);
}

void Channel::carry_out_queued(const Collective& collective, std::uint64_t number) {
  world_.check_whole();
  if (collective.size() == 1) return run_alone(collective);
  world_.recorder.started(number);
  carry_out(collective, number);
}

void Channel::carry_out(const Collective& collective, std::uint64_t number) {
  try {
    move_bytes(collective);
  } catch (...) {
    world_.recorder.ended(number, true);
    world_.fail(Failure::current(), *this);
    world_.check_whole();  // throws the first failure, of this channel or of another
    throw;
  }
  world_.recorder.ended(number, false);
}

void Channel::move_bytes(const Collective& collective) {
  try {
    algorithms_.run(collective);
  } catch (const PeerError& error) {
    throw PeerError(error.rank(), fmt::format("{}: {}", collective.to_string(), error.what()));
  }
}

}  // namespace atl::comm
