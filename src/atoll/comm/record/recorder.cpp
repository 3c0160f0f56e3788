#include "atoll/comm/record/recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/comm/collectives/call_header.h"

namespace atl::comm {

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

bool has_ended(const RecordedCall& call) {
  return call.state == RecordedCall::State::kDone || call.state == RecordedCall::State::kFailed;
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

// Drops the oldest calls that have ended; when none can be dropped, the ring doubles.
void Recorder::make_room() {
  while (next_ - first_ >= kKept && has_ended(at(first_).call)) ++first_;
  if (next_ - first_ < ring_.size()) return;
  std::vector<Entry> larger(std::max(kKept, 2 * ring_.size()));
  for (std::uint64_t i = first_; i < next_; ++i) larger[i % larger.size()] = std::move(at(i));
  ring_ = std::move(larger);
}

Recorder::Entry& Recorder::add(const Collective& collective, RecordedCall::State state) {
  make_room();
  Entry& entry = at(next_++);
  entry.caller = std::this_thread::get_id();
  RecordedCall& call = entry.call;
  call.op = collective.op;
  call.sequence = collective.sequence;
  call.group = collective.group;
  call.where = collective.where;
  call.spec = described_spec(collective);
  call.state = state;
  call.beside = false;
  call.queued = Clock::now();
  return entry;
}

std::uint64_t Recorder::queued(const Collective& collective) {
  const std::lock_guard lock(mutex_);
  add(collective, RecordedCall::State::kQueued);
  return next_ - 1;
}

std::uint64_t Recorder::begun(const Collective& collective) {
  const std::lock_guard lock(mutex_);
  RecordedCall& call = add(collective, RecordedCall::State::kRunning).call;
  call.started = call.queued;
  return next_ - 1;
}

void Recorder::started(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  auto& [call, caller] = at(number);
  call.state = RecordedCall::State::kRunning;
  call.beside = caller != std::this_thread::get_id();
  call.started = Clock::now();
}

void Recorder::ended(std::uint64_t number, bool failed) {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  RecordedCall& call = at(number).call;
  call.state = failed ? RecordedCall::State::kFailed : RecordedCall::State::kDone;
  call.ended = now;
  busy_seconds_ += seconds(call.ended - call.started);
  if (listener_) listener_(call);
}

void Recorder::listen(std::function<void(const RecordedCall& call)> listener) {
  const std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
}

std::vector<RecordedCall> Recorder::calls() const {
  const std::lock_guard lock(mutex_);
  std::vector<RecordedCall> calls;
  calls.reserve(next_ - first_);
  for (std::uint64_t i = first_; i < next_; ++i) calls.push_back(at(i).call);
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
