#include "atoll/comm/world.h"

#include <fmt/format.h>

#include <mutex>
#include <numeric>
#include <optional>

#include "atoll/base/check.h"
#include "atoll/comm/alone.h"
#include "atoll/comm/collectives.h"
#include "atoll/comm/failure.h"
#include "atoll/comm/world_state.h"

namespace atl::comm {

World::State::State(std::unique_ptr<Transport> a_transport, const WorldOptions& the_options)
    : transport(std::move(a_transport)),
      options(the_options),
      worker([this](const Collective& collective, std::uint64_t number) {
        carry_out_queued(collective, number);
      }) {}

void World::State::check_whole() {
  if (!broken()) return;
  const std::lock_guard lock(mutex);
  if (failure) failure->raise();
}

void World::State::carry_out_queued(const Collective& collective, std::uint64_t number) {
  check_whole();
  if (collective.size() == 1) return run_alone(collective);
  recorder.started(number);
  carry_out(collective, number);
}

void World::State::carry_out(const Collective& collective, std::uint64_t number) {
  try {
    move_bytes(collective);
  } catch (...) {
    recorder.ended(number, true);
    const std::lock_guard lock(mutex);
    failure = Failure::current();
    is_broken.store(true, std::memory_order_release);
    throw;
  }
  recorder.ended(number, false);
}

void World::State::move_bytes(const Collective& collective) {
  try {
    if (!transport->run(collective)) run_pieces(*transport, collective);
  } catch (const PeerError& error) {
    throw PeerError(error.rank(), fmt::format("{}: {}", collective.to_string(), error.what()));
  }
}

World::World(std::unique_ptr<Transport> transport, const WorldOptions& options)
    : state_(std::make_unique<State>(std::move(transport), options)) {
  std::vector<int> members(static_cast<std::size_t>(size()));
  std::iota(members.begin(), members.end(), 0);
  state_->all = group(std::move(members), "world");
}

World::~World() {
  // Nobody waits for what still runs: it must not hold up the end until its timeout.
  if (!state_->worker.finished())
    abort("it ended while collectives that it had started were running");
}

int World::rank() const {
  return state_->transport->rank();
}

int World::size() const {
  return state_->transport->size();
}

std::string World::backend() const {
  return state_->transport->name();
}

const WorldOptions& World::options() const {
  return state_->options;
}

Group& World::all() {
  return *state_->all;
}

std::unique_ptr<Group> World::group(std::vector<int> members, std::string name) {
  return std::make_unique<Group>(*this, std::move(members), std::move(name));
}

const Recorder& World::recorder() const {
  return state_->recorder;
}

void World::listen(std::function<void(const RecordedCall& call)> listener) {
  state_->recorder.listen(std::move(listener));
}

void World::run(const Collective& collective) {
  State& state = *state_;
  if (!state.worker.idle()) state.worker.wait_idle();
  state.check_whole();
  if (collective.size() == 1) return run_alone(collective);
  state.carry_out(collective, state.recorder.begun(collective));
}

Work World::start(Collective collective) {
  State& state = *state_;
  const bool alone = collective.size() == 1;
  if (alone && state.worker.idle()) {
    state.check_whole();
    run_alone(collective);
    return Work();
  }
  const std::uint64_t number = alone ? 0 : state.recorder.queued(collective);
  return state.worker.push(std::move(collective), number);
}

void World::abort(const std::string& why) noexcept {
  // Some may still be about to hear it, and would hear this instead.
  if (!state_->agreed_to_end) state_->transport->abort(why);
}

bool World::reports() const {
  return state_->reports;
}

}  // namespace atl::comm
