#include "atoll/comm/channel/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/comm/collectives/alone.h"
#include "atoll/comm/failure.h"
#include "atoll/comm/peer_error.h"

namespace atl::comm {

Channel::Channel(SharedState& world, std::string name, std::vector<int> members,
                 std::unique_ptr<Transport> transport)
    : world_(world),
      name_(std::move(name)),
      members_(std::move(members)),
      transport_(std::move(transport)),
      algorithms_(world.options, transport_.get()),
      worker_([this](const Collective& collective, std::uint64_t number) {
        carry_out_queued(collective, number);
      }) {}

GpuCollectives* Channel::gpu() {
  if (gpu_ == nullptr && transport_ != nullptr && world_.make_gpu_links) {
    auto made = std::make_unique<GpuCollectives>(*transport_, world_.make_gpu_links(*transport_));
    const std::lock_guard lock(gpu_mutex_);
    gpu_ = std::move(made);
  }
  return gpu_.get();
}

void Channel::drop_gpu_links() {
  worker_.wait_idle();
  have_links_.clear();
  const std::lock_guard lock(gpu_mutex_);
  gpu_.reset();
}

void Channel::abort_gpu_links() noexcept {
  const std::lock_guard lock(gpu_mutex_);
  if (gpu_ != nullptr) gpu_->links().abort();
}

// Links are made by all members, and some may not call an exchange: all have made them in an
// earlier call, or none has.
bool Channel::is_staged(const Collective& collective) {
  if (!needs_staging(collective)) return false;
  if (collective.size() == 1) return true;
  if (collective.op == Op::kExchange) return !have_links_.contains(collective.members);
  if (gpu() == nullptr) return true;
  have_links_.insert(collective.members);
  return false;
}

void Channel::wait_for_started() {
  if (!worker_.idle()) worker_.wait_idle();
}

void Channel::run(const Collective& collective) {
  if (is_staged(collective)) return run_staged(collective);
  run_here(collective);
}

void Channel::run_staged(const Collective& collective) {
  wait_for_started();  // it may write what is copied here
  run_here(staging_.bring(collective));
  staging_.take_back(collective);
}

void Channel::run_here(const Collective& collective) {
  wait_for_started();
  world_.check_whole();
  if (collective.size() == 1) return run_alone(collective);
  carry_out(collective, world_.recorder.begun(collective));
}

// Pipelines start to receive long before what they wait for is sent.
Work Channel::start_staged_exchange(const Collective& collective) {
  auto staged = std::find_if(exchanges_.begin(), exchanges_.end(),
                             [](const auto& each) { return !each->in_use(); });
  if (staged == exchanges_.end()) {
    staged = exchanges_.insert(staged, std::make_shared<StagedExchange>());
  }
  const Collective& on_host = (*staged)->begin(collective);
  return worker_.push(on_host, world_.recorder.queued(collective), *staged);
}

Work Channel::start(const Collective& collective) {
  if (is_staged(collective)) {
    if (collective.op == Op::kExchange && collective.size() > 1) {
      return start_staged_exchange(collective);
    }
    // What comes back has to be copied on the caller's thread, and the next call may read it.
    run_staged(collective);
    return Work();
  }
  if (needs_staging(collective) && gpu()->links().is_for_one_thread()) {
    run_here(collective);
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
    needs_staging(collective) ? gpu()->run(collective) : algorithms_.run(collective);
  } catch (const PeerError& error) {
    throw PeerError(error.rank(), fmt::format("{}: {}", collective.to_string(), error.what()));
  }
}

}  // namespace atl::comm
