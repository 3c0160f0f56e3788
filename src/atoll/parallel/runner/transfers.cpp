#include "atoll/parallel/runner/transfers.h"

#include <algorithm>
#include <chrono>

#include "atoll/base/check.h"
#include "atoll/comm/world.h"

namespace atl::parallel {

namespace {

bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendOutput || kind == ActionKind::kSendGradient;
}

}  // namespace

Transfers::Transfers(const RankSchedule& schedule) : at_tick_(schedule.actions.size(), -1) {
  for (const Transfer& when : schedule.transfers) {
    const Action& action = schedule.actions[static_cast<std::size_t>(when.tick)];
    at_tick_[static_cast<std::size_t>(when.tick)] = std::ssize(moving_);
    if (is_send(action.kind)) sends_.push_back(moving_.size());
    moving_.push_back({when, action, {}});
  }
  std::stable_sort(sends_.begin(), sends_.end(), [&](std::size_t a, std::size_t b) {
    return moving_[a].when.end < moving_[b].when.end;
  });
}

bool Transfers::takes_part(const Action& action) const {
  return all_ || (action.micro_batch == 0 && (action.kind == ActionKind::kReceiveInput ||
                                              action.kind == ActionKind::kSendOutput));
}

void Transfers::begin_walk(bool all) {
  all_ = all;
  next_begin_ = next_send_ = 0;
  ATOLL_CHECK(moving_.empty() || pipeline_ != nullptr, "not connected");
}

void Transfers::advance(std::int64_t tick, const TensorOf& tensor_of) {
  for (; next_send_ < sends_.size(); ++next_send_) {
    Moving& send = moving_[sends_[next_send_]];
    if (send.when.end > tick) break;
    end(send);
  }
  for (; next_begin_ < moving_.size() && moving_[next_begin_].when.begin <= tick; ++next_begin_) {
    if (takes_part(moving_[next_begin_].action)) begin(moving_[next_begin_], tensor_of);
  }
}

void Transfers::act(std::int64_t tick) {
  const std::ptrdiff_t at = at_tick_[static_cast<std::size_t>(tick)];
  if (at < 0) return;
  Moving& moving = moving_[static_cast<std::size_t>(at)];
  if (!is_send(moving.action.kind)) end(moving);
}

// Other ranks may wait for sends of this rank, and this rank for their sends: abort() ends both. A
// Work that is dropped waits for its end, so the memory may be freed after this.
void Transfers::abandon(const std::string& why) noexcept {
  if (moving_.empty() || pipeline_ == nullptr) return;
  pipeline_->world().abort(why);
  for (Moving& moving : moving_) moving.work = {};
}

void Transfers::begin(Moving& moving, const TensorOf& tensor_of) {
  const Tensor tensor = tensor_of(moving.action);
  moving.work = is_send(moving.action.kind) ? pipeline_->start_send(tensor, moving.action.peer)
                                            : pipeline_->start_recv(tensor, moving.action.peer);
}

void Transfers::end(Moving& moving) {
  const auto start = std::chrono::steady_clock::now();
  moving.work.wait();
  moving.work = {};
  waited_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace atl::parallel
