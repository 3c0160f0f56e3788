#include "atoll/watch/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/base/json.h"

namespace atl::watch {

namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxMarks = 2000;

double on(const Place& place, Axis axis) {
  return place[static_cast<std::size_t>(axis)];
}

std::string text_of(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

template <typename T, typename Fn>
void append_list(std::string& json, const char* name, const std::vector<T>& list, Fn&& append) {
  json += fmt::format(",\"{}\":[", name);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0) json += ',';
    append(list[i]);
  }
  json += ']';
}

void append_part(std::string& json, const SeriesPart& part, const SeriesAnswer& answer) {
  const auto number = [&](double value) { append_number(json, value); };
  const auto count = [&](std::uint64_t value) {
    fmt::format_to(std::back_inserter(json), "{}", value);
  };
  json += "{\"name\":";
  append_string(json, part.name);
  append_list(json, "r", part.records, count);
  append_list(json, answer.size == 1 ? "x" : "x0", part.x0, number);
  if (answer.size == 1) {
    append_list(json, "y", part.mean, number);
  } else {
    append_list(json, "x1", part.x1, number);
    append_list(json, "min", part.min, number);
    append_list(json, "max", part.max, number);
    append_list(json, "mean", part.mean, number);
  }
  append_list(json, "bad", part.nonfinite, [&](const Nonfinite& one) {
    fmt::format_to(std::back_inserter(json), "[{},", one.record);
    append_number(json, on(one.place, answer.axis));
    json += ']';
  });
  if (!part.records.empty()) {
    json += ",\"first\":";
    number(part.first);
    json += ",\"last\":";
    number(part.last);
  }
  json += '}';
}

ordered_json place_json(const Place& place) {
  return {place[0], place[1], place[2], place[3]};
}

// The lines of a file that are JSON objects.
ordered_json lines_json(const SideLines& side) {
  ordered_json list = ordered_json::array();
  for (const std::string& line : side.lines) {
    try {
      ordered_json object = parse_ordered_json(line, "a line");
      if (object.is_object()) list.push_back(std::move(object));
    } catch (const Error&) {
      continue;  // of another version, or cut off
    }
  }
  return list;
}

// The JSON object in a file's text; null where the text is not one.
ordered_json object_of(const std::string& text) {
  try {
    ordered_json object = parse_ordered_json(text, "a file");
    return object.is_object() ? object : ordered_json();
  } catch (const Error&) {
    return {};
  }
}

// Events of the run, which every chart shows as vertical lines.
ordered_json marks_json(const WatchedRun& run, const RunLog::Summary& summary) {
  ordered_json marks = ordered_json::array();
  const auto add = [&](const char* kind, const Place& place, const std::string& text) {
    if (marks.size() < kMaxMarks) {
      marks.push_back({{"kind", kind}, {"at", place_json(place)}, {"text", text}});
    }
  };
  for (const Place& place : summary.pauses) {
    add("restart", place,
        fmt::format("goes on after a pause, at step {:.0f}", on(place, Axis::kStep)));
  }
  for (const auto& [place, ranks] : run.log->points("regroup_ranks", kMaxMarks)) {
    add("members", place,
        fmt::format("{:.0f} ranks from step {:.0f}", ranks, on(place, Axis::kStep)));
  }
  for (const auto& [place, number] : run.log->points("outer_step", kMaxMarks)) {
    add("commit", place, fmt::format("outer step {:.0f} committed", number));
  }
  for (const auto& [place, one] : run.log->points("nonfinite", kMaxMarks)) {
    add("nonfinite", place, fmt::format("step {:.0f} was not finite", on(place, Axis::kStep)));
  }
  return marks;
}

// A hash that is equal for runs whose settings differ only in the seed and in settings that do not
// affect training, so that a mean of their curves makes sense. Empty for a run without settings.
std::string alike(const WatchedRun& run) {
  constexpr const char* kLeftOut[] = {"run.", "log.", "metrics.", "alerts.", "checkpoint."};
  Hasher hasher;
  for (const auto& [key, value] : run.settings) {
    const auto is_in = [&key = key](const char* table) { return key.starts_with(table); };
    if (std::ranges::any_of(kLeftOut, is_in)) continue;
    const std::string text = key + "=" + value + "\n";
    hasher.update(text.data(), text.size());
  }
  return run.settings.empty() ? "" : to_hex(hasher.digest());
}

ordered_json summary_of(const WatchedRun& run, const RunLog::Summary& log) {
  ordered_json series = ordered_json::array();
  for (const SeriesSummary& one : log.series) {
    ordered_json entry = {
        {"name", one.name}, {"count", one.count}, {"min", one.min}, {"max", one.max}};
    entry["last"] = std::isfinite(one.last) ? ordered_json(one.last) : ordered_json();
    series.push_back(std::move(entry));
  }
  std::string total;
  for (const auto& [key, value] : run.settings) {
    if (key == "train.steps") total = value;
  }
  return {{"id", run.id},
          {"state", name_of(run.state)},
          {"holder", run.holder},
          {"generation", log.generation},
          {"records", log.num_records},
          {"bad_lines", log.bad_lines},
          {"gone", log.is_gone},
          {"bytes", log.file_bytes},
          {"read", log.read_bytes},
          {"first", place_json(log.first)},
          {"last", place_json(log.last)},
          {"steps", total},
          {"alike", alike(run)},
          {"trace", !run.trace.empty()},
          {"alerts", run.alerts.lines.size()},
          {"samples", run.samples.lines.size()},
          {"notes", lines_json(run.notes)},
          {"series", series}};
}

}  // namespace

void append_number(std::string& json, double number) {
  if (std::isfinite(number)) {
    fmt::format_to(std::back_inserter(json), "{}", number);
  } else {
    json += "null";
  }
}

void append_string(std::string& json, std::string_view text) {
  json += text_of(ordered_json(std::string(text)));
}

std::string to_json(const SeriesAnswer& answer) {
  std::string json = fmt::format("{{\"generation\":{},\"records\":{},\"size\":{},\"begins\":{}",
                                 answer.generation, answer.num_records, answer.size, answer.begins);
  append_list(json, "series", answer.series,
              [&](const SeriesPart& part) { append_part(json, part, answer); });
  return json + "}";
}

std::string summary_json(const WatchedRun& run) {
  return text_of(summary_of(run, run.log->summary()));
}

std::string detail_json(const WatchedRun& run) {
  const RunLog::Summary log = run.log->summary();
  ordered_json json = summary_of(run, log);
  ordered_json settings = ordered_json::array();
  for (const auto& [key, value] : run.settings) settings.push_back({key, value});
  json["settings"] = std::move(settings);
  json["marks"] = marks_json(run, log);
  json["checkpoints"] = ordered_json::array();
  for (const auto& [step, time] : run.checkpoints) json["checkpoints"].push_back({step, time});
  json["texts"] = ordered_json::array();
  for (const LoggedText& text : run.log->texts(0)) {
    json["texts"].push_back(
        {{"at", place_json(text.place)}, {"name", text.name}, {"text", text.text}});
  }
  json["alert_list"] = lines_json(run.alerts);
  json["samples"] = lines_json(run.samples);
  json["ranks"] = object_of(run.ranks);
  return text_of(json);
}

}  // namespace atl::watch
