#include "atoll/serve/stages/pipeline_executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/serve/stages/messages.h"
#include "atoll/wire/session.h"

namespace atl::serve::stages {

namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// After a stage has refused: perhaps another server has it until then.
constexpr std::int64_t kRetryNs = 5'000'000'000;

// A tenth of what is new: about ten steps or heartbeats decide.
void blend(double& average, double next) {
  constexpr double kShare = 0.1;
  average = average == 0 ? next : average + kShare * (next - average);
}

// The rows of a step go in one frame; half of it is for all else.
void check_frames(const PipelineOptions& options) {
  const std::int64_t row_bytes = options.config.hidden_size * std::int64_t{sizeof(float)};
  const std::int64_t most = static_cast<std::int64_t>(kMaxFrameBytes) / 2 / row_bytes;
  if (options.room.max_rows <= most) return;
  throw user_error(
      "--step-tokens={}: the hidden states of so many do not fit in one message between "
      "stages; choose at most {}",
      options.room.max_rows, most);
}

// A machine, whether it has layers now or is a spare.
struct Node {
  std::string address;
  std::unique_ptr<wire::Session> session;
  bool is_connected = false;
  bool is_ready = false;      // in the present epoch
  std::int64_t retry_ns = 0;  // it has refused layers, and is asked again then; 0: it has not
  std::string problem = "not connected yet";
  std::int64_t heard_ns = 0;  // its last answer
  std::size_t bytes_per_step = 0;
  double step_seconds = 0, round_trip_seconds = 0;

  bool is_usable() const { return is_connected && now_ns() >= retry_ns; }
};

}  // namespace

std::int64_t groups_for(const std::vector<double>& stage_seconds, double link_seconds) {
  const double slowest = *std::ranges::max_element(stage_seconds);
  const auto num_stages = static_cast<std::int64_t>(stage_seconds.size());
  if (slowest <= 0) return num_stages;
  const double whole =
      std::accumulate(stage_seconds.begin(), stage_seconds.end(), 0.0) + link_seconds;
  constexpr double kMost = 64;
  return static_cast<std::int64_t>(std::clamp(std::ceil(whole / slowest), 1.0, kMost));
}

// Sessions call from their threads; each call takes the mutex and changes what it says. The thread
// here makes and ends sessions, sends heartbeats and begins epochs.
class PipelineExecutor::State {
 public:
  explicit State(PipelineOptions given) : options(std::move(given)) {
    ATOLL_CHECK_EQ(options.stages.size(), options.layers.size());
    check_frames(options);
    for (const auto* list : {&options.stages, &options.spares}) {
      for (const std::string& address : *list) {
        nodes.push_back(std::make_unique<Node>());
        nodes.back()->address = address;
      }
    }
    std::random_device random;
    server = (std::uint64_t{random()} << 32) | random();
    epoch = server;
    try {
      for (const auto& node : nodes) connect(*node);
    } catch (...) {
      end_sessions();
      throw;
    }
    thread = std::thread([this] { run(); });
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    changed.notify_all();
    thread.join();
    end_sessions();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void connect(Node& node);
  void take_frame(Node& node, const std::string& frame);
  void take_result(ResultMessage message);
  void take_trouble(Node& node, const Trouble& trouble);
  void lose(Node& node, const std::string& why, bool is_final);
  void break_pipeline(const std::string& address, const std::string& why);
  void run();
  std::vector<Node*> find_silent();
  void send_heartbeats();
  bool can_fill() const;
  bool fill_places();
  void assign();
  void wake();
  void end_sessions() {
    for (const auto& node : nodes) node->session.reset();
  }

  bool has_place(const Node& node) const {
    return std::any_of(nodes.begin(), nodes.begin() + std::ssize(options.stages),
                       [&](const auto& at) { return at.get() == &node; });
  }
  std::span<const std::unique_ptr<Node>> places() const {
    return std::span(nodes).first(options.stages.size());
  }

  const PipelineOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::unique_ptr<Node>> nodes;  // those that have places first, in their order
  std::uint64_t server = 0, epoch = 0;
  bool is_assigned = false;  // in this epoch
  bool is_ready = false;
  bool was_ready = false;
  std::string refusal;  // before it was ready
  std::deque<StepResult> done;
  std::function<void()> on_change;
  bool ends = false;
  std::thread thread;
};

void PipelineExecutor::State::connect(Node& node) {
  constexpr int kMaxBackoffMs = 1000;
  node.session = std::make_unique<wire::Session>(
      wire::SessionOptions{.address = node.address,
                           .identity = options.identity,
                           .max_frame_bytes = kMaxFrameBytes,
                           .max_queue_bytes = kMaxQueueBytes,
                           .max_backoff_ms = kMaxBackoffMs},
      wire::Session::Events{
          .connected =
              [this, &node] {
                {
                  const std::lock_guard lock(mutex);
                  node.is_connected = true;
                  node.retry_ns = 0;
                  node.problem = "it has no layers yet";
                  node.heard_ns = now_ns();
                }
                changed.notify_all();
              },
          .received = [this, &node](const std::string& frame) { take_frame(node, frame); },
          .disconnected = [this, &node](const std::string& why,
                                        bool is_final) { lose(node, why, is_final); }});
}

void PipelineExecutor::State::wake() {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex);
    call = on_change;
  }
  if (call) call();
}

void PipelineExecutor::State::take_frame(Node& node, const std::string& frame) {
  try {
    std::unique_lock lock(mutex);
    switch (kind_of(frame)) {
      case Kind::kPong: {
        node.heard_ns = now_ns();
        constexpr double kNanosecond = 1e-9;
        blend(node.round_trip_seconds,
              static_cast<double>(node.heard_ns - decode<Beat>(frame).sent_ns) * kNanosecond);
        return;
      }
      case Kind::kReady: {
        const auto ready = decode<Ready>(frame);
        if (ready.epoch != epoch || !has_place(node)) return;
        node.is_ready = true;
        node.problem.clear();
        node.bytes_per_step = ready.bytes_per_step;
        const auto is_done = [](const auto& at) { return at->is_ready; };
        if (!std::ranges::all_of(places(), is_done)) return;
        is_ready = was_ready = true;
        log::info("all {} stages have their layers", options.stages.size());
        break;
      }
      case Kind::kResult:
        take_result(decode<ResultMessage>(frame));
        break;
      case Kind::kRefused:
      case Kind::kTrouble: {
        auto trouble = decode<Trouble>(frame);
        if (kind_of(frame) == Kind::kRefused) {
          trouble.epoch = epoch;
          trouble.breaks = true;
          node.retry_ns = now_ns() + kRetryNs;
        }
        take_trouble(node, trouble);
        break;
      }
      default:
        throw damaged_error("a server does not expect message {}", static_cast<int>(frame.front()));
    }
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex);
    take_trouble(node, {epoch, error.what(), true});
  }
  changed.notify_all();
  wake();
}

void PipelineExecutor::State::take_result(ResultMessage message) {
  if (message.epoch != epoch) return;
  for (std::size_t i = 0; i < std::min(message.seconds.size(), options.stages.size()); ++i) {
    blend(nodes[i]->step_seconds, message.seconds[i]);
  }
  done.push_back({message.number, std::move(message.pieces), std::move(message.error)});
}

void PipelineExecutor::State::take_trouble(Node& node, const Trouble& trouble) {
  if (trouble.epoch != epoch || !has_place(node)) return;
  // Where a link that was there has broken, the next stage is the one that is down.
  if (!trouble.breaks || node.retry_ns != 0) node.problem = trouble.why;
  if (!trouble.breaks) return log::info("stage {}: {}", node.address, trouble.why);
  if (!was_ready && node.retry_ns != 0 && refusal.empty()) {
    refusal = fmt::format("stage {}: {}", node.address, trouble.why);
  }
  break_pipeline(node.address, trouble.why);
}

void PipelineExecutor::State::lose(Node& node, const std::string& why, bool is_final) {
  {
    const std::lock_guard lock(mutex);
    node.is_connected = false;
    node.problem = why;
    if (!was_ready) log::info("waiting for stage {}: {}", node.address, why);
    if (!was_ready && is_final && refusal.empty()) {
      refusal = fmt::format("stage {}: {}", node.address, why);
    }
    if (has_place(node)) break_pipeline(node.address, why);
  }
  changed.notify_all();
  wake();
}

// The mutex is held; wake() must follow.
void PipelineExecutor::State::break_pipeline(const std::string& address, const std::string& why) {
  if (!is_assigned) return;
  if (is_ready) log::warning("stage {} is lost: {}; answers wait and go on", address, why);
  ++epoch;
  is_assigned = is_ready = false;
  done.clear();
  for (const auto& node : nodes) {
    node->is_ready = false;
    if (node->is_usable()) node->problem.clear();  // it waits for another
  }
}

void PipelineExecutor::State::run() {
  const auto beat = std::chrono::milliseconds(options.heartbeat_ms);
  Clock::time_point next_beat = Clock::now();
  std::unique_lock lock(mutex);
  while (!ends) {
    if (Clock::now() >= next_beat) {
      next_beat = Clock::now() + beat;
      const std::vector<Node*> silent = find_silent();
      send_heartbeats();
      lock.unlock();
      for (Node* node : silent) {  // new sessions: the old connections may never end
        node->session.reset();
        connect(*node);
      }
      if (!silent.empty()) wake();
      lock.lock();
    }
    if (!is_assigned && fill_places()) assign();
    changed.wait_until(lock, next_beat, [&] { return ends || (!is_assigned && can_fill()); });
  }
}

std::vector<Node*> PipelineExecutor::State::find_silent() {
  std::vector<Node*> silent;
  const std::int64_t oldest = now_ns() - std::int64_t{options.timeout_ms} * 1'000'000;
  for (const auto& node : nodes) {
    if (!node->is_connected || node->heard_ns >= oldest) continue;
    node->is_connected = false;
    node->problem = fmt::format("no answer for {} ms", options.timeout_ms);
    if (has_place(*node)) break_pipeline(node->address, node->problem);
    silent.push_back(node.get());
  }
  return silent;
}

void PipelineExecutor::State::send_heartbeats() {
  for (const auto& node : nodes) {
    if (node->is_connected) node->session->send(encode(Kind::kPing, Beat{now_ns()}));
  }
}

bool PipelineExecutor::State::can_fill() const {
  const auto is_usable = [](const auto& node) { return node->is_usable(); };
  if (!was_ready) return std::ranges::all_of(places(), is_usable);
  return std::ranges::count_if(nodes, is_usable) >= std::ssize(options.stages);
}

// Spares take the places of those that are lost, but not of those that have not come yet.
bool PipelineExecutor::State::fill_places() {
  const auto first_spare = nodes.begin() + std::ssize(options.stages);
  for (auto node = nodes.begin(); node != first_spare; ++node) {
    if ((*node)->is_usable()) continue;
    if (!was_ready) return false;
    const auto spare =
        std::find_if(first_spare, nodes.end(), [](const auto& at) { return at->is_usable(); });
    if (spare == nodes.end()) return false;
    log::info("stage {} takes the place of {}", (*spare)->address, (*node)->address);
    std::iter_swap(node, spare);
  }
  return true;
}

void PipelineExecutor::State::assign() {
  is_assigned = true;
  const std::size_t count = options.stages.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Assignment assignment = {.server = server,
                                   .epoch = epoch,
                                   .model = options.model,
                                   .weights = options.weights,
                                   .first_layer = options.layers[i].first,
                                   .end_layer = options.layers[i].end,
                                   .room = options.room,
                                   .vocab_size = options.vocab_size,
                                   .next = i + 1 < count ? nodes[i + 1]->address : ""};
    nodes[i]->problem = "it reads its layers";
    nodes[i]->step_seconds = 0;
    nodes[i]->session->send(encode(Kind::kAssign, assignment));
  }
}

PipelineExecutor::PipelineExecutor(PipelineOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}

PipelineExecutor::~PipelineExecutor() = default;

void PipelineExecutor::wait_until_ready() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->is_ready || !state_->refusal.empty(); });
  if (!state_->refusal.empty()) throw user_error("{}", state_->refusal);
}

const StepRoom& PipelineExecutor::room() const {
  return state_->options.room;
}

const nn::ModelConfig& PipelineExecutor::config() const {
  return state_->options.config;
}

std::size_t PipelineExecutor::bytes_per_step() const {
  const std::lock_guard lock(state_->mutex);
  std::size_t bytes = 0;
  for (const auto& node : state_->places()) bytes += node->bytes_per_step;
  return bytes;
}

std::int64_t PipelineExecutor::depth() const {
  if (state_->options.groups > 0) return state_->options.groups;
  const std::lock_guard lock(state_->mutex);
  std::vector<double> seconds;
  double links = 0;
  for (const auto& node : state_->places()) {
    seconds.push_back(node->step_seconds);
    links += node->round_trip_seconds / 2;
  }
  return groups_for(seconds, links);
}

bool PipelineExecutor::is_ready() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_ready;
}

std::uint64_t PipelineExecutor::epoch() const {
  const std::lock_guard lock(state_->mutex);
  return state_->epoch;
}

void PipelineExecutor::begin(const StepOrder& order) {
  std::string frame = encode(Kind::kStep, to_message(order, state_->options.vocab_size));
  {
    const std::lock_guard lock(state_->mutex);
    if (order.epoch != state_->epoch || !state_->is_ready) return;
    Node& first = *state_->nodes.front();
    if (first.session->send(std::move(frame))) return;
    first.heard_ns = 0;  // has run() make a new session, if this one has not ended by itself
    state_->break_pipeline(first.address, "the connection is broken");
  }
  state_->wake();
}

std::optional<StepResult> PipelineExecutor::take() {
  const std::lock_guard lock(state_->mutex);
  if (state_->done.empty()) return std::nullopt;
  std::optional<StepResult> first = std::move(state_->done.front());
  state_->done.pop_front();
  return first;
}

void PipelineExecutor::on_change(std::function<void()> changed) {
  const std::lock_guard lock(state_->mutex);
  state_->on_change = std::move(changed);
}

std::vector<StageStatus> PipelineExecutor::stages() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<StageStatus> stages;
  for (std::size_t i = 0; i < state_->options.stages.size(); ++i) {
    const Node& node = *state_->nodes[i];
    // One that waits for another is not down itself.
    const bool is_up = node.is_ready || (node.is_usable() && node.problem.empty());
    stages.push_back({node.address, state_->options.layers[i].first, state_->options.layers[i].end,
                      is_up, is_up ? "" : node.problem, node.step_seconds,
                      node.round_trip_seconds});
  }
  return stages;
}

}  // namespace atl::serve::stages
