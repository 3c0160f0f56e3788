#include "atoll/param_server/messages.h"

#include <algorithm>
#include <set>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/optim/registry.h"
#include "atoll/wire/archive.h"

namespace atl::optim {

namespace {

template <typename Archive>
void fields(Archive& a, ParamRange& r) {
  a(r.begin), a(r.count), a(r.decay), a(r.lr_scale), a(r.matrix), a(r.rows), a(r.cols);
  a(r.value_begin), a(r.grad_begin), a(r.counted);
}

// Of the kinds of values that optimizers have: numbers, words and flags.
template <typename Archive>
void value_fields(Archive& a, SettingValue& value) {
  auto kind = static_cast<std::uint8_t>(value.index());
  a(kind);
  const auto one = [&]<typename T>(T) {
    if constexpr (Archive::kReads) value.emplace<T>();
    a(std::get<T>(value));
  };
  switch (kind) {
    case 0:
      return one(std::int64_t{});
    case 1:
      return one(double{});
    case 2:
      return one(bool{});
    case 3:
      return one(std::string{});
    default:
      throw damaged_error("an option of an optimizer is of kind {}", kind);
  }
}

template <typename Archive>
void fields(Archive& a, OptimizerOptions& o) {
  a(o.kind), a(o.peak_lr), a(o.masters);
  auto count = static_cast<std::uint64_t>(o.values.size());
  a(count);
  if constexpr (Archive::kReads) {
    for (; count > 0; --count) {
      std::string name;
      a(name);
      value_fields(a, o.values[name]);
    }
  } else {
    for (auto& [name, value] : o.values) a(name), value_fields(a, value);
  }
}

}  // namespace

}  // namespace atl::optim

namespace atl::param_server {

// Found by argument-dependent lookup, so in no unnamed namespace.
template <typename Archive>
void fields(Archive& a, Slice& s) {
  a(s.begin), a(s.count);
  auto count = static_cast<std::uint64_t>(s.ranges.size());
  a(count);
  if constexpr (Archive::kReads) s.ranges.clear();
  for (std::uint64_t i = 0; i < count; ++i) {
    if constexpr (Archive::kReads) s.ranges.emplace_back();
    optim::fields(a, s.ranges[i]);
  }
}
template <typename Archive>
void fields(Archive& a, RunSpec& s) {
  a(s.version), a(s.identity), a(s.consistency), a(s.staleness), a(s.compensation);
  a(s.num_lanes), a(s.replicas), a(s.num_servers), a(s.num_workers), a(s.first_step),
      a(s.num_steps);
  a(s.fence_every), a(s.seed), a(s.dtype), a(s.num_elements);
  optim::fields(a, s.optimizer);
  a(s.slices);
}
template <typename Archive>
void fields(Archive& a, ServerEntry& m) {
  a(m.id), a(m.address);
}
template <typename Archive>
void fields(Archive& a, View& m) {
  a(m.number), a(m.servers), a(m.chains), a(m.joining);
}
template <typename Archive>
void fields(Archive& a, LaneAt& m) {
  a(m.lane), a(m.step);
}
template <typename Archive>
void fields(Archive& a, Term& m) {
  a(m.run), a(m.epoch);
}
template <typename Archive>
void fields(Archive& a, WorkerHello& m) {
  a(m.version), a(m.identity), a(m.worker), a(m.lanes);
}
template <typename Archive>
void fields(Archive& a, ServerHello& m) {
  a(m.version), a(m.address), a(m.identity), a(m.slices), a(m.term), a(m.server), a(m.is_restored);
}
template <typename Archive>
void fields(Archive& a, Offer& m) {
  a(m.spec);
}
template <typename Archive>
void fields(Archive& a, Welcome& m) {
  a(m.term), a(m.server), a(m.shall_load), a(m.step);
}
template <typename Archive>
void fields(Archive& a, Refused& m) {
  a(m.why);
}
template <typename Archive>
void fields(Archive& a, Loaded& m) {
  a(m.view);
}
template <typename Archive>
void fields(Archive& a, Assign& m) {
  a(m.lanes), a(m.until);
}
template <typename Archive>
void fields(Archive& a, Done& m) {
  a(m.at);
}
template <typename Archive>
void fields(Archive& a, Released& m) {
  a(m.at);
}
template <typename Archive>
void fields(Archive& a, Save& m) {
  a(m.step);
}
template <typename Archive>
void fields(Archive& a, Saved& m) {
  a(m.step);
}
template <typename Archive>
void fields(Archive& /*a*/, StopRun& /*m*/) {}
template <typename Archive>
void fields(Archive& a, End& m) {
  a(m.why);
}
template <typename Archive>
void fields(Archive& a, Ready& m) {
  a(m.slice), a(m.server);
}
template <typename Archive>
void fields(Archive& a, Push& m) {
  a(m.slice), a(m.step), a(m.lane), a(m.is_skipped), a(m.lr), a(m.scale), a(m.loss), a(m.data);
}
template <typename Archive>
void fields(Archive& a, Pushed& m) {
  a(m.slice), a(m.lane), a(m.next);
}
template <typename Archive>
void fields(Archive& a, AwaitSum& m) {
  a(m.slice), a(m.step), a(m.lanes);
}
template <typename Archive>
void fields(Archive& a, Sum& m) {
  a(m.slice), a(m.step), a(m.squares), a(m.losses);
}
template <typename Archive>
void fields(Archive& a, Update& m) {
  a(m.is_given), a(m.is_skipped), a(m.lr), a(m.scale);
}
template <typename Archive>
void fields(Archive& a, Pull& m) {
  a(m.slice), a(m.step), a(m.lane), a(m.update);
}
template <typename Archive>
void fields(Archive& a, Values& m) {
  a(m.slice), a(m.step), a(m.lane), a(m.slowest), a(m.next), a(m.data);
}
template <typename Archive>
void fields(Archive& a, Load& m) {
  a(m.slice), a(m.step), a(m.updates), a(m.values), a(m.state);
}
template <typename Archive>
void fields(Archive& a, LoadedSlice& m) {
  a(m.slice);
}
template <typename Archive>
void fields(Archive& a, Read& m) {
  a(m.slice), a(m.step);
}
template <typename Archive>
void fields(Archive& a, State& m) {
  a(m.slice), a(m.values), a(m.state);
}
template <typename Archive>
void fields(Archive& a, NotHead& m) {
  a(m.slice);
}
template <typename Archive>
void fields(Archive& a, Clocks& m) {
  a(m.lanes);
}
template <typename Archive>
void fields(Archive& a, Replicate& m) {
  a(m.slice), a(m.view), a(m.sequence), a(m.event);
}
template <typename Archive>
void fields(Archive& a, Copy& m) {
  a(m.slice), a(m.view), a(m.sequence), a(m.state);
}
template <typename Archive>
void fields(Archive& a, Replicated& m) {
  a(m.slice), a(m.view), a(m.sequence);
}

template <typename Archive>
void fields(Archive& a, SchedulerState::KnownWorker& m) {
  a(m.number), a(m.identity);
}
template <typename Archive>
void fields(Archive& a, SchedulerState::KnownLane& m) {
  a(m.owner), a(m.next), a(m.is_releasing);
}
template <typename Archive>
void fields(Archive& a, SchedulerState::Leaving& m) {
  a(m.slice), a(m.server);
}
template <typename Archive>
void fields(Archive& a, SchedulerState& m) {
  a(m.term), a(m.has_spec);
  if (m.has_spec) a(m.spec);
  a(m.view), a(m.last_server), a(m.workers), a(m.lanes), a(m.leaving), a(m.until);
  a(m.is_loaded), a(m.is_begun), a(m.is_saving), a(m.stops), a(m.is_over), a(m.end_why);
}

namespace {

template <std::size_t I = 0>
Message read_alternative(std::size_t kind, wire::Reader& reader) {
  if constexpr (I == std::variant_size_v<Message>) {
    throw damaged_error("a message of kind {}", kind);
  } else {
    if (kind != I) return read_alternative<I + 1>(kind, reader);
    Message message;
    reader(message.emplace<I>());
    return message;
  }
}

}  // namespace

std::string encode(const Message& message) {
  wire::Writer writer;
  writer(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& body) { writer(body); }, message);
  return writer.take();
}

Message decode(std::string_view frame) {
  wire::Reader reader(frame);
  std::uint8_t kind = 0;
  reader(kind);
  Message message = read_alternative(kind, reader);
  reader.end();
  return message;
}

namespace {

// Lanes and servers have numbers, and vectors of that size.
constexpr std::int64_t kMostParts = 1 << 20;
constexpr std::int64_t kMostElements = kMaxFrame / (4 * sizeof(float));

void check_slice(const Slice& slice, std::int64_t begin) {
  if (slice.begin != begin || slice.count < 1 || slice.count > kMostElements) {
    throw damaged_error("a slice of {} elements from {}, after {}", slice.count, slice.begin,
                        begin);
  }
  for (const optim::ParamRange& range : slice.ranges) {
    const bool is_within = range.begin >= slice.begin && range.count >= 0 &&
                           range.count <= slice.count &&
                           range.begin - slice.begin <= slice.count - range.count;
    const auto fits = [&](std::int64_t at) { return at >= 0 && at <= slice.count - range.count; };
    if (!is_within || !fits(range.value_begin) || !fits(range.grad_begin)) {
      throw damaged_error("a range of {} elements from {} in a slice of {} from {}", range.count,
                          range.begin, slice.count, slice.begin);
    }
  }
}

}  // namespace

void check_spec(const RunSpec& spec) {
  for (const std::int64_t count :
       {spec.num_lanes, spec.replicas, spec.num_servers, spec.num_workers}) {
    if (count < 1 || count > kMostParts) throw damaged_error("a run with {} parts", count);
  }
  if (spec.staleness < 0 || spec.first_step < 0 || spec.num_steps < spec.first_step ||
      spec.fence_every < 0) {
    throw damaged_error(
        "a run from step {} to {}, with {} from checkpoint to checkpoint and a "
        "staleness of {}",
        spec.first_step, spec.num_steps, spec.fence_every, spec.staleness);
  }
  std::int64_t begin = 0;
  for (const Slice& slice : spec.slices) {
    check_slice(slice, begin);
    begin = slice.begin + slice.count;
  }
  if (begin != spec.num_elements || spec.slices.empty()) {
    throw damaged_error("slices of {} elements, and there are {}", begin, spec.num_elements);
  }
}

namespace {

bool knows_its_servers(const View& view) {
  std::set<ServerId> known = {kNobody};
  for (const ServerEntry& server : view.servers) known.insert(server.id);
  const auto is_known = [&](ServerId id) { return known.contains(id); };
  return std::all_of(view.joining.begin(), view.joining.end(), is_known) &&
         std::all_of(view.chains.begin(), view.chains.end(), [&](const auto& chain) {
           return std::all_of(chain.begin(), chain.end(), is_known) &&
                  std::count(chain.begin(), chain.end(), kNobody) == 0;
         });
}

}  // namespace

std::string encode(const SchedulerState& state) {
  wire::Writer writer;
  writer(state);
  return writer.take();
}

SchedulerState decode_scheduler(std::string_view bytes) {
  wire::Reader reader(bytes);
  SchedulerState state;
  reader(state);
  reader.end();
  if (!state.has_spec) return state;
  check_spec(state.spec);
  const bool has_parts = state.view.chains.size() == state.spec.slices.size() &&
                         state.view.joining.size() == state.spec.slices.size() &&
                         std::ssize(state.lanes) == state.spec.num_lanes;
  if (!has_parts) throw damaged_error("a scheduler of other slices or lanes than its run");
  const auto is_step = [&](std::int64_t step) { return step >= 0 && step <= state.spec.num_steps; };
  bool is_sound = is_step(state.until);
  for (const SchedulerState::KnownLane& lane : state.lanes) is_sound &= is_step(lane.next);
  if (state.is_loaded) is_sound &= knows_its_servers(state.view);
  if (!is_sound) throw damaged_error("a scheduler of steps or servers that there are not");
  return state;
}

std::vector<std::string> state_names(const optim::OptimizerOptions& options, Dtype dtype) {
  std::vector<std::string> names;
  for (const char* name : optim::find_optimizer(options.kind).state_vectors) {
    names.emplace_back(name);
  }
  if (dtype == Dtype::kBf16 && options.masters == optim::Masters::kF32)
    names.emplace_back("master");
  return names;
}

}  // namespace atl::param_server
