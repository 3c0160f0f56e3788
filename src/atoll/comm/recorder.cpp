#include "atoll/comm/recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/comm/call_header.h"

namespace atl::comm {

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string describe_call(const RecordedCall& call, Clock::time_point now) {
  using State = RecordedCall::State;
  std::string text = fmt::format("{} #{} of {}", op_name(call.op), call.sequence, call.group);
  if (call.op != Op::kBarrier) text += ", " + call.spec.to_string();
  text += fmt::format(", at {}:{}: ", file_name(call.where.file_name()), call.where.line());
  const double ms = 1e3;
  switch (call.state) {
    case State::kQueued:
      return text + fmt::format("queued for {:.3f} ms", ms * seconds(now - call.queued));
    case State::kRunning:
      return text + fmt::format("running for {:.3f} ms", ms * seconds(now - call.started));
    case State::kDone:
      return text + fmt::format("done in {:.3f} ms", ms * seconds(call.ended - call.started));
    case State::kFailed:
      return text + fmt::format("failed after {:.3f} ms", ms * seconds(call.ended - call.started));
  }
  return text;
}

}  // namespace

std::uint64_t Recorder::queued(const Collective& collective) {
  RecordedCall call;
  call.op = collective.op;
  call.sequence = collective.sequence;
  call.group = collective.group;
  call.where = collective.where;
  call.spec = described_spec(collective);
  call.queued = Clock::now();
  const std::lock_guard lock(mutex_);
  if (ring_.size() < kKept) {
    ring_.push_back(std::move(call));
  } else {
    ring_[next_ % kKept] = std::move(call);
  }
  return next_++;
}

void Recorder::started(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (next_ - number > kKept) return;  // queued so long ago that it was overwritten
  RecordedCall& call = ring_[number % kKept];
  call.state = RecordedCall::State::kRunning;
  call.started = Clock::now();
}

void Recorder::ended(std::uint64_t number, bool failed) {
  const std::lock_guard lock(mutex_);
  if (next_ - number > kKept) return;
  RecordedCall& call = ring_[number % kKept];
  call.state = failed ? RecordedCall::State::kFailed : RecordedCall::State::kDone;
  call.ended = Clock::now();
  busy_seconds_ += seconds(call.ended - call.started);
}

std::vector<RecordedCall> Recorder::calls() const {
  const std::lock_guard lock(mutex_);
  std::vector<RecordedCall> calls;
  calls.reserve(ring_.size());
  const std::uint64_t first = next_ - ring_.size();
  for (std::uint64_t i = first; i < next_; ++i) calls.push_back(ring_[i % kKept]);
  return calls;
}

double Recorder::busy_seconds() const {
  const std::lock_guard lock(mutex_);
  return busy_seconds_;
}

std::string Recorder::describe(std::size_t most) const {
  const std::vector<RecordedCall> all = calls();
  const Clock::time_point now = Clock::now();
  std::string text;
  for (std::size_t i = all.size() - std::min(most, all.size()); i < all.size(); ++i) {
    text += describe_call(all[i], now) + "\n";
  }
  return text;
}

}  // namespace atl::comm
