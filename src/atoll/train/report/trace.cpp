#include "atoll/train/report/trace.h"

#include <optional>

#include "atoll/base/files/file.h"
#include "atoll/base/log.h"

namespace atl::train {

namespace {

namespace fs = std::filesystem;
using metrics::Span;
using Clock = Span::Clock;
using std::chrono::nanoseconds;

// The first of these warm up connections; the best of the rest counts.
constexpr int kRoundTrips = 32;
// Shorter waits for parameters are left out: they would be as many as the passes.
constexpr std::chrono::microseconds kShortest(20);

Tensor view(std::int64_t& number) {
  return {&number, {Dtype::kI64, {1}}};
}

std::int64_t count_of(Clock::time_point time) {
  return std::chrono::duration_cast<nanoseconds>(time.time_since_epoch()).count();
}

std::int64_t bytes_of(const comm::RecordedCall& call) {
  return call.op == comm::Op::kBarrier ? 0 : static_cast<std::int64_t>(call.spec.bytes());
}

std::string place_of(const comm::Where& where) {
  return fmt::format("{}:{}", fs::path(where.file_name()).filename().string(), where.line());
}

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

ClockOffset clock_offset(comm::World& world, const std::function<Clock::time_point()>& now) {
  comm::Group& all = world.all();
  std::int64_t ping = 0, answer = 0;
  if (all.rank() == 0) {
    for (int rank = 1; rank < all.size(); ++rank) {
      for (int i = 0; i < kRoundTrips; ++i) {
        all.recv(view(ping), rank);
        answer = count_of(now());
        all.send(view(answer), rank);
      }
    }
    return {};
  }
  std::optional<ClockOffset> best;
  for (int i = 0; i < kRoundTrips; ++i) {
    const std::int64_t sent = count_of(now());
    all.send(view(ping), 0);
    all.recv(view(answer), 0);
    const nanoseconds half((count_of(now()) - sent) / 2);
    if (!best || half < best->uncertainty) best = {nanoseconds(answer - sent) - half, half};
  }
  return *best;
}

Trace::Trace(comm::World& world, TrainState& state, fs::path file)
    : world_(world), state_(state), file_(std::move(file)) {
  world.agree([&] {
    // Now rather than when the steps have been taken: a file that is never committed.
    if (world.rank() != 0) return;
    if (fs::is_directory(file_)) {
      throw user_error("log.trace is the directory {}; name a file in it", file_.string());
    }
    const AtomicFile probe(file_);
  });
  // Rank 0's clock is the time since the trace began there, so the offset is the origin too.
  origin_ = Clock::now();
  const Clock::duration zero =
      world.rank() == 0 ? origin_.time_since_epoch() : Clock::duration::zero();
  clock_ = clock_offset(world, [zero] { return Clock::now() - zero; });
  if (world.rank() != 0) origin_ = Clock::time_point(-clock_.ahead);
  world.listen([this](const comm::RecordedCall& one) { call(one); });
  state.runner().listen([this](const parallel::PassEvent& event) { pass(event); });
}

Trace::~Trace() {
  world_.listen({});
  state_.runner().listen({});
}

void Trace::pass(const parallel::PassEvent& event) {
  using Moment = parallel::PassEvent::Moment;
  const Clock::time_point now = Clock::now();
  if (event.moment == Moment::kAcquire) acquire_ = now;
  if (event.moment == Moment::kCompute) begin_ = now;
  if (event.moment == Moment::kRelease) release_ = now;
  if (event.moment != Moment::kEnd) return;
  const auto add = [&](std::string name, const char* category, Clock::time_point from,
                       Clock::time_point to) {
    timeline_.add({std::move(name), category, Span::Track::kMain, from, to});
  };
  if (begin_ - acquire_ >= kShortest) add("acquire", "wait", acquire_, begin_);
  if (now - release_ >= kShortest) add("release", "wait", release_, now);
  add(fmt::format("{}{} {}", event.idle ? "idle " : "",
                  event.pass.kind == parallel::PassKind::kForward ? "forward" : "backward",
                  state_.model().stage_names[event.pass.stage]),
      event.idle ? "idle" : "pass", acquire_, now);
}

void Trace::call(const comm::RecordedCall& call) {
  timeline_.add({comm::op_name(call.op),
                 "collective",
                 call.beside ? Span::Track::kCollectives : Span::Track::kMain,
                 call.started,
                 call.ended,
                 {{"group", call.group},
                  {"sequence", static_cast<std::int64_t>(call.sequence)},
                  {"bytes", bytes_of(call)},
                  {"shape", call.op == comm::Op::kBarrier ? "" : call.spec.to_string()},
                  {"where", place_of(call.where)},
                  {"queued_ms", milliseconds(call.started - call.queued)}}});
}

void Trace::write() {
  world_.listen({});  // the trace must not grow by its own collectives
  state_.runner().listen({});
  const int rank = world_.rank();
  metrics::TimelineOwner owner = {
      .rank = rank, .name = fmt::format("rank {}", rank), .remark = {}, .origin = origin_};
  if (rank > 0) {
    owner.remark = fmt::format("clock within {:.1f} us of rank 0's",
                               static_cast<double>(clock_.uncertainty.count()) / 1e3);
  }
  const std::string own = metrics::to_trace_events(timeline_, owner);
  const auto ranks = static_cast<std::size_t>(world_.size());
  // Of each rank: the size of its text, and how many spans it had no room for.
  std::vector<std::int64_t> facts(2 * ranks);
  facts[2 * static_cast<std::size_t>(rank)] = static_cast<std::int64_t>(own.size());
  facts[2 * static_cast<std::size_t>(rank) + 1] = timeline_.num_lost();
  std::vector<std::int64_t> parts;
  for (std::size_t r = 0; r <= ranks; ++r) parts.push_back(static_cast<std::int64_t>(2 * r));
  world_.all().all_gather({facts.data(), {Dtype::kI64, {parts.back()}}}, parts);
  if (rank > 0) {
    std::string text = own;
    world_.all().send({text.data(), {Dtype::kU8, {facts[2 * static_cast<std::size_t>(rank)]}}}, 0);
    return;
  }
  std::int64_t lost = 0;
  for (std::size_t r = 0; r < ranks; ++r) lost += facts[2 * r + 1];
  if (lost > 0) {
    log::warning("{}: {} spans are left out, as a rank keeps {}; set log.trace_steps lower",
                 file_.string(), lost, metrics::Timeline::kMost);
  }
  write_all(facts, own);
}

// Takes every rank's text even when it cannot be written: the others wait until it is taken.
void Trace::write_all(const std::vector<std::int64_t>& facts, const std::string& own) {
  std::optional<AtomicFile> file;
  bool fine = true;
  const auto attempt = [&](const std::function<void()>& action) {
    if (!fine) return;
    try {
      action();
    } catch (const Error& error) {
      fine = false;
      log::warning("no trace was written: {}", error.what());
    }
  };
  attempt([&] {
    file.emplace(file_);
    file->write("[\n" + own);
  });
  for (int r = 1; r < world_.size(); ++r) {
    std::string text(static_cast<std::size_t>(facts[2 * static_cast<std::size_t>(r)]), '\0');
    world_.all().recv({text.data(), {Dtype::kU8, {static_cast<std::int64_t>(text.size())}}}, r);
    attempt([&] { file->write(",\n" + text); });
  }
  attempt([&] {
    file->write("\n]\n");
    file->commit();
    log::info("a trace is in {}; chrome://tracing and ui.perfetto.dev open it", file_.string());
  });
}

}  // namespace atl::train
