#include "atoll/metrics/finished.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/json.h"
#include "atoll/metrics/record.h"

namespace atl::metrics {

namespace fs = std::filesystem;

void write_finished(const fs::path& dir, std::int64_t step) {
  write_file(dir / kFinishedFile,
             fmt::format("{{\"step\":{},\"time\":{:.3f}}}\n", step, wall_time_now()));
}

void remove_finished(const fs::path& dir) {
  std::error_code ignored;
  fs::remove(dir / kFinishedFile, ignored);
}

std::int64_t finished_step(const fs::path& dir) {
  constexpr std::uint64_t kMaxBytes = 4096;
  std::error_code error;
  if (!fs::is_regular_file(dir / kFinishedFile, error)) return -1;
  try {
    const nlohmann::json json = parse_json(read_file(dir / kFinishedFile, kMaxBytes), "a file");
    return whole_number(json.at("step"));
  } catch (const Error&) {
    return -1;
  } catch (const nlohmann::json::exception&) {
    return -1;
  }
}

}  // namespace atl::metrics
