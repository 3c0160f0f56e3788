// metrics.jsonl of a run that is only looked at: any bytes, in any pieces, and all questions.

#include <cstdio>

#include "atoll/watch/json_text.h"
#include "atoll/watch/run_log.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const atl::fuzz::Directory directory;
  const std::string_view bytes = atl::fuzz::text(data, size);
  const auto path = directory.write("metrics.jsonl", bytes.substr(0, size / 3));
  atl::watch::RunLog log(path, 4096);
  while (log.update(512)) {
  }
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) std::abort();
  std::fwrite(bytes.data() + size / 3, 1, size - size / 3, file);
  std::fclose(file);
  while (log.update(512)) {
  }
  atl::watch::SeriesQuery query;
  for (const auto& series : log.summary().series) query.names.push_back(series.name);
  for (const std::size_t points : {1, 100}) {
    query.points = points;
    for (const auto axis : {atl::watch::Axis::kStep, atl::watch::Axis::kActive}) {
      query.axis = axis;
      (void)atl::watch::to_json(log.query(query));
    }
  }
  (void)log.texts(0);
  return 0;
}
