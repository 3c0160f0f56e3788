#include "atoll/tune/trial/event.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/json.h"

namespace atl::tune {

using nlohmann::ordered_json;

namespace {

constexpr const char* kKinds[] = {"open", "suggest", "go_on", "start", "result", "end"};
constexpr End kEnds[] = {End::kFinished, End::kStopped, End::kDiverged, End::kRefused};

// JSON has no NaN.
double number_or_nan(const ordered_json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

ordered_json body_of(const Event& e) {
  switch (e.kind) {
    case Event::Kind::kSuggest: {
      ordered_json settings = ordered_json::object();
      for (const auto& [key, value] : e.settings) settings[key] = value;
      ordered_json json = {{"step", e.step}, {"units", e.units}, {"settings", settings}};
      if (!e.note.empty()) json["note"] = e.note;
      if (e.bracket != 0) json["bracket"] = e.bracket;
      if (e.member >= 0) json["member"] = e.member;
      if (e.parent >= 0) {
        json["parent"] = e.parent;
        json["fork_step"] = e.fork_step;
      }
      return json;
    }
    case Event::Kind::kGoOn:
      return {{"step", e.step}};
    case Event::Kind::kStart: {
      ordered_json json = {{"step", e.step}};
      if (!e.worker.empty()) json["worker"] = e.worker;
      return json;
    }
    case Event::Kind::kResult: {
      ordered_json values = ordered_json::array();
      for (const double value : e.values) {
        values.push_back(std::isfinite(value) ? ordered_json(value) : ordered_json());
      }
      return {{"step", e.step}, {"values", values}, {"tokens", e.tokens}, {"seconds", e.seconds}};
    }
    case Event::Kind::kEnd:
      return {{"end", name_of(e.end)}, {"why", e.why}};
    case Event::Kind::kOpen:
      break;
  }
  return ordered_json::object();
}

void read_body(const ordered_json& json, Event& e) {
  if (e.kind == Event::Kind::kOpen) return;
  if (e.kind == Event::Kind::kEnd) {
    const std::string name = json.at("end");
    for (const End end : kEnds) {
      if (name == name_of(end)) e.end = end;
    }
    if (e.end == End::kNone) throw damaged_error("\"{}\" is no end of a trial", name);
    e.why = json.at("why");
    return;
  }
  e.step = whole_number(json.at("step"));
  if (e.kind == Event::Kind::kResult) {
    for (const ordered_json& value : json.at("values")) e.values.push_back(number_or_nan(value));
    e.tokens = whole_number(json.at("tokens"));
    e.seconds = json.at("seconds");
  }
  if (e.kind == Event::Kind::kStart) e.worker = json.value("worker", "");
  if (e.kind != Event::Kind::kSuggest) return;
  e.units = json.at("units").get<Units>();
  for (const auto& [key, value] : json.at("settings").items()) {
    e.settings.emplace_back(key, value.get<std::string>());
  }
  e.note = json.value("note", "");
  const auto number_or = [&](const char* key, auto otherwise) {
    return json.contains(key) ? whole_number<decltype(otherwise)>(json.at(key)) : otherwise;
  };
  e.bracket = number_or("bracket", 0);
  e.member = number_or("member", -1);
  e.parent = number_or("parent", -1);
  e.fork_step = number_or("fork_step", std::int64_t{0});
}

}  // namespace

const char* name_of(Event::Kind kind) {
  return kKinds[static_cast<int>(kind)];
}

std::string to_json(const Event& event) {
  return body_of(event).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Event parse_event(const std::string& kind, int trial, const std::string& json,
                  const std::string& origin) {
  Event event = {.trial = trial};
  bool known = false;
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    if (kind != kKinds[i]) continue;
    event.kind = static_cast<Event::Kind>(i);
    known = true;
  }
  if (!known) throw damaged_error("{}: \"{}\" is no kind of event", origin, kind);
  try {
    read_body(parse_ordered_json(json, origin), event);
  } catch (const nlohmann::json::exception& error) {
    throw damaged_error("{}: {}", origin, json_reason(error));
  }
  return event;
}

}  // namespace atl::tune
