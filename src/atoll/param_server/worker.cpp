#include "atoll/param_server/worker.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::param_server {

namespace {

// Requests to one server that are under way at once: 16 slices of 1 MiB fill 1 Gbit/s over 100 ms.
constexpr int kWindow = 16;

// The slice that a server's answer is about.
std::optional<std::uint32_t> slice_of(const Message& message) {
  return std::visit(
      [](const auto& body) -> std::optional<std::uint32_t> {
        if constexpr (requires { body.slice; }) return body.slice;
        return std::nullopt;
      },
      message);
}

}  // namespace

Worker::Worker(std::int64_t number, std::string identity)
    : number_(number), identity_(std::move(identity)) {}

WorkerHello Worker::hello() const {
  WorkerHello hello{
      .version = kProtocolVersion, .identity = identity_, .worker = number_, .lanes = {}};
  for (const auto& [lane, step] : lanes_) hello.lanes.push_back({lane, step});
  return hello;
}

void Worker::offer(RunSpec spec) {
  spec_ = std::move(spec);
}

void Worker::connected_to_scheduler() {
  // It goes on with its lanes until it hears which are its own now: pushes that another worker
  // makes too count once.
  shall_load_ = false;
  save_.reset();
  tell(hello());
  if (spec_) tell(Offer{*spec_});
  if (has_asked_to_stop_) tell(StopRun{});
}

void Worker::received_from_scheduler(const Message& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    take(*welcome);
  } else if (const auto* view = std::get_if<View>(&message)) {
    take(*view);
  } else if (const auto* assign = std::get_if<Assign>(&message)) {
    take(*assign);
  } else if (const auto* save = std::get_if<Save>(&message)) {
    // The scheduler may not have heard that it is saved.
    if (save->step == saved_) return tell(Saved{saved_});
    save_ = save->step;
  } else if (const auto* end = std::get_if<End>(&message)) {
    ended_ = end->why;
  } else if (const auto* refused = std::get_if<Refused>(&message)) {
    refusal_ = refused->why;
  } else {
    throw damaged_error("a message that a scheduler does not send");
  }
}

// A scheduler that knows nothing of what this worker has begun would begin it once more.
void Worker::take(const Welcome& welcome) {
  if (begun_ && welcome.term.run != term_.run) {
    refusal_ =
        "the scheduler of the parameter servers has started again and knows nothing of this run; "
        "start the run again, and it goes on from its last checkpoint (with --dir `atoll server` "
        "would have remembered)";
    return;
  }
  if (begun_ && welcome.term.epoch < term_.epoch) {
    refusal_ = fmt::format(
        "the scheduler of the parameter servers is of epoch {}, and one of epoch {} was there "
        "before: two of them run; end the older one, and start this worker again",
        welcome.term.epoch, term_.epoch);
    return;
  }
  term_ = welcome.term;
  shall_load_ = shall_load_ || welcome.shall_load;
  if (!welcome.shall_load && !begun_) begun_ = welcome.step;
}

ServerId Worker::head_of(std::uint32_t slice) const {
  if (slice >= view_.chains.size() || view_.chains[slice].empty()) return kNobody;
  return view_.chains[slice].front();
}

void Worker::take(const View& view) {
  if (view.number <= view_.number) return;
  std::vector<ServerId> before(progress_.size());
  for (std::uint32_t i = 0; i < before.size(); ++i) before[i] = head_of(i);
  view_ = view;
  for (std::uint32_t i = 0; i < before.size(); ++i) {
    if (head_of(i) == before[i]) continue;
    if (progress_[i] == Progress::kSent) --num_sent_[before[i]];
    if (progress_[i] != Progress::kDone) progress_[i] = Progress::kWaiting;
  }
  ask();
}

void Worker::take(const Assign& assign) {
  until_ = assign.until;
  std::map<std::int64_t, std::int64_t> lanes;
  for (const LaneAt& at : assign.lanes) {
    const auto own = lanes_.find(at.lane);
    lanes[at.lane] = own == lanes_.end() ? at.step : std::max(own->second, at.step);
    // What it had done while there was no scheduler.
    if (lanes[at.lane] > at.step) tell(Done{{at.lane, lanes[at.lane]}});
  }
  for (const auto& [lane, step] : lanes_) {
    if (!lanes.contains(lane)) tell(Released{{lane, step}});
  }
  lanes_ = std::move(lanes);
  say_clocks();
}

// To all servers: those that have lost pushes of these lanes learn it. While a lane goes on they
// do by what it pushes and pulls.
void Worker::say_clocks() {
  for (const ServerEntry& server : view_.servers) say_clocks(server.id);
}

void Worker::say_clocks(ServerId server) {
  Clocks clocks;
  for (const auto& [lane, step] : lanes_) clocks.lanes.push_back({lane, step});
  if (!clocks.lanes.empty()) sends_.push_back({false, server, std::move(clocks)});
}

std::optional<LaneAt> Worker::next_lane() const {
  std::optional<LaneAt> best;
  for (const auto& [lane, step] : lanes_) {
    if (step < until_ && (!best || step < best->step)) best = LaneAt{lane, step};
  }
  return best;
}

void Worker::done(std::int64_t lane, std::int64_t step) {
  const auto at = lanes_.find(lane);
  if (at == lanes_.end()) return;
  at->second = std::max(at->second, step);
  tell(Done{{lane, at->second}});
  if (!next_lane()) say_clocks();
}

bool Worker::take_shall_load() {
  if (!shall_load_) return false;
  shall_load_ = false;
  loading_view_ = view_.number;
  return true;
}

void Worker::loaded() {
  tell(Loaded{loading_view_});
}

void Worker::saved(std::int64_t step) {
  save_.reset();
  saved_ = step;
  tell(Saved{step});
}

void Worker::ask_to_stop() {
  has_asked_to_stop_ = true;
  tell(StopRun{});
}

void Worker::begin(std::size_t num_slices, Exchange exchange) {
  exchange_ = std::move(exchange);
  progress_.assign(num_slices, Progress::kWaiting);
  num_sent_.clear();
  left_ = num_slices;
  ask();
}

// Sends what there is room for, to servers that are there.
void Worker::ask() {
  if (!exchange_) return;
  for (std::uint32_t slice = 0; slice < progress_.size(); ++slice) {
    if (progress_[slice] != Progress::kWaiting) continue;
    const ServerId head = head_of(slice);
    if (head == kNobody || num_sent_[head] >= kWindow) continue;
    ++num_sent_[head];
    progress_[slice] = Progress::kSent;
    sends_.push_back({false, head, exchange_->request(slice)});
  }
}

void Worker::connected(ServerId server) {
  say_clocks(server);
  if (!exchange_) return;
  num_sent_[server] = 0;
  for (std::uint32_t slice = 0; slice < progress_.size(); ++slice) {
    if (progress_[slice] == Progress::kSent && head_of(slice) == server) {
      progress_[slice] = Progress::kWaiting;
    }
  }
  ask();
}

void Worker::retry() {
  if (!exchange_) return;
  for (Progress& progress : progress_) {
    if (progress == Progress::kRefused) progress = Progress::kWaiting;
  }
  ask();
}

void Worker::received_from_server(ServerId server, const Message& message) {
  const std::optional<std::uint32_t> slice = slice_of(message);
  if (!slice) throw damaged_error("a message that a server does not send");
  // Answers to what was asked before, or of a server that is not the head any more.
  if (!exchange_ || *slice >= progress_.size()) return;
  if (progress_[*slice] != Progress::kSent || head_of(*slice) != server) return;
  if (std::holds_alternative<NotHead>(message)) {
    progress_[*slice] = Progress::kRefused;
    --num_sent_[server];
    return;
  }
  if (!exchange_->accept(*slice, message)) return;
  progress_[*slice] = Progress::kDone;
  --num_sent_[server];
  --left_;
  ask();
}

}  // namespace atl::param_server
