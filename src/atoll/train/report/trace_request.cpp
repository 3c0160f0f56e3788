#include "atoll/train/report/trace_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/json.h"
#include "atoll/base/log.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kRequestFile = "trace-request.json";
constexpr const char* kDirectory = "traces";
constexpr std::size_t kLongestId = 64;
constexpr std::int64_t kMostSteps = 100'000;
constexpr std::uint64_t kMostBytes = 4096;

bool is_id(const std::string& text) {
  return !text.empty() && text.size() <= kLongestId &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

}  // namespace

fs::path trace_path(const fs::path& run_dir, const std::string& id) {
  return run_dir / kDirectory / (id + ".json");
}

void ask_for_trace(const fs::path& run_dir, const TraceRequest& request) {
  ATOLL_CHECK(is_id(request.id), "'{}'", request.id);
  const fs::path path = run_dir / kRequestFile;
  if (path_exists(path)) {
    throw user_error(
        "{} waits to be taken: the run is asked for a trace already; wait for its next step, or "
        "remove the file when nothing trains there",
        path.string());
  }
  const nlohmann::ordered_json json = {{"id", request.id}, {"steps", request.steps}};
  write_file(path, json.dump() + "\n");
}

bool take_back_request(const fs::path& run_dir) {
  std::error_code ignored;
  return fs::remove(run_dir / kRequestFile, ignored);
}

TraceRequest parse_trace_request(const std::string& text, const std::string& origin) {
  try {
    const nlohmann::ordered_json root = parse_ordered_json(text, origin);
    TraceRequest request = {root.at("id").get<std::string>(), whole_number(root.at("steps"))};
    if (!is_id(request.id) || request.steps < 1 || request.steps > kMostSteps) {
      throw damaged_error("{}: an id of letters and digits, and from 1 to {} steps", origin,
                          kMostSteps);
    }
    return request;
  } catch (const nlohmann::json::exception& error) {
    throw damaged_error("{} asks for no trace: {}", origin, json_reason(error));
  }
}

std::optional<TraceRequest> take_trace_request(const fs::path& run_dir) noexcept {
  const fs::path path = run_dir / kRequestFile;
  try {
    if (!path_exists(path)) return std::nullopt;
    const std::string text = read_file(path, kMostBytes);
    std::error_code error;
    if (!fs::remove(path, error)) return std::nullopt;  // taken back meanwhile
    const TraceRequest request = parse_trace_request(text, path.string());
    fs::create_directories(run_dir / kDirectory, error);
    if (error) throw io_error("cannot make", run_dir / kDirectory, error.value());
    return request;
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove(path, ignored);
    log::warning("no trace: {}", error.what());
    return std::nullopt;
  }
}

}  // namespace atl::train
