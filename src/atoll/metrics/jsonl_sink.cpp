#include "atoll/metrics/jsonl_sink.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/json.h"

namespace atl::metrics {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}
Json to_json(std::int64_t value) {
  return value;
}
Json to_json(const std::string& value) {
  return value;
}

Value from_json(const Json& value) {
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  auto text = value.get<std::string>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return text;
}

// Calls fn(line, where) for every line that has a line end; `where` is "file:number".
template <typename Fn>
void for_each_line(std::string_view text, const std::filesystem::path& path, Fn&& fn) {
  int number = 1;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n'), ++number) {
    fn(text.substr(0, end), fmt::format("{}:{}", path.string(), number));
    text.remove_prefix(end + 1);
  }
}

// Removes the records after `last_step` from the file. Returns `path`, so that a constructor can
// call this before it opens the file.
const std::filesystem::path& without_later(const std::filesystem::path& path,
                                           std::int64_t last_step) {
  if (!path_exists(path)) return path;
  const std::string text = read_file(path, kMaxLogBytes);
  std::string kept;
  for_each_line(text, path, [&](std::string_view line, const std::string& where) {
    if (parse_jsonl(line, where).step <= last_step) kept.append(line).push_back('\n');
  });
  if (kept.size() != text.size()) write_file(path, kept);
  return path;
}

}  // namespace

std::string to_jsonl(const Record& record) {
  Json line = {{"step", record.step}, {"time", record.wall_time_s}};
  for (const auto& [name, value] : record.values) {
    line[name] = std::visit([](const auto& v) { return to_json(v); }, value);
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Record parse_jsonl(std::string_view line, const std::string& origin) {
  try {
    const Json root = parse_ordered_json(line, origin);
    Record record;
    record.step = whole_number(root.at("step"));
    root.at("time").get_to(record.wall_time_s);
    for (const auto& [name, value] : root.items()) {
      if (name != "step" && name != "time") record.values.emplace_back(name, from_json(value));
    }
    return record;
  } catch (const Error& error) {
    throw damaged_error("{}; mend the line, or move the file away", error.what());
  } catch (const Json::exception& error) {
    throw damaged_error("{} is not a record of metrics ({}); mend the line, or move the file away",
                        origin, json_reason(error));
  }
}

std::vector<Record> read_jsonl(const std::filesystem::path& path) {
  std::vector<Record> records;
  const std::string text = read_file(path, kMaxLogBytes);
  for_each_line(text, path, [&](std::string_view line, const std::string& where) {
    records.push_back(parse_jsonl(line, where));
  });
  return records;
}

JsonlSink::JsonlSink(const std::filesystem::path& path, std::int64_t last_step)
    : file_(without_later(path, last_step)) {}

void JsonlSink::write(const Record& record) {
  file_.append(to_jsonl(record) + "\n");
}

}  // namespace atl::metrics
