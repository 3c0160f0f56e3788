#include "atoll/metrics/timeline.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace atl::metrics {

namespace {

using Json = nlohmann::ordered_json;

double microseconds(Span::Clock::duration duration) {
  const double nanoseconds =
      static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
  return nanoseconds / 1e3;
}

Json to_json(const Value& value) {
  return std::visit([](const auto& v) -> Json { return v; }, value);
}

std::string to_text(const Json& event) {
  return event.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A metadata event: the name or the sort order of a process, or the name of one of its threads.
std::string fact(const char* kind, int rank, Span::Track track, const char* key,
                 const Json& value) {
  return to_text({{"ph", "M"},
                  {"name", kind},
                  {"pid", rank},
                  {"tid", static_cast<int>(track)},
                  {"args", {{key, value}}}});
}

std::string to_event(const Span& span, const TimelineOwner& owner) {
  Json event = {{"ph", "X"},
                {"name", span.name},
                {"cat", span.category},
                {"pid", owner.rank},
                {"tid", static_cast<int>(span.track)},
                {"ts", microseconds(span.begin - owner.origin)},
                {"dur", microseconds(span.end - span.begin)}};
  for (const auto& [name, value] : span.details) event["args"][name] = to_json(value);
  return to_text(event);
}

}  // namespace

void Timeline::add(Span span) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() == kMost) {
    ++lost_;
    return;
  }
  spans_.push_back(std::move(span));
}

std::vector<Span> Timeline::spans() const {
  const std::lock_guard lock(mutex_);
  return spans_;
}

std::int64_t Timeline::num_lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

ScopedSpan::~ScopedSpan() {
  if (timeline_ == nullptr) return;
  try {
    timeline_->add({name_, category_, Span::Track::kMain, begin_, Span::Clock::now()});
  } catch (...) {  // out of memory: training goes on without this span
  }
}

std::string to_trace_events(const Timeline& timeline, const TimelineOwner& owner) {
  using Track = Span::Track;
  std::string text = fact("process_name", owner.rank, Track::kMain, "name", owner.name);
  const auto add = [&](const std::string& event) { text += ",\n" + event; };
  add(fact("process_sort_index", owner.rank, Track::kMain, "sort_index", owner.rank));
  if (!owner.remark.empty()) {
    add(fact("process_labels", owner.rank, Track::kMain, "labels", owner.remark));
  }
  add(fact("thread_name", owner.rank, Track::kMain, "name", "main"));
  add(fact("thread_name", owner.rank, Track::kCollectives, "name", "collectives"));
  for (const Span& span : timeline.spans()) add(to_event(span, owner));
  return text;
}

}  // namespace atl::metrics
