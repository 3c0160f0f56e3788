#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/files/append_file.h"
#include "atoll/metrics/sink.h"

namespace atl::metrics {

/// One JSON object a line, without the line's end: {"step":5,"time":1763700000.25,"loss":2.5}.
/// JSON has no NaN and no infinities: they are the strings "NaN", "Infinity", "-Infinity".
std::string to_jsonl(const Record& record);

/// The reverse of to_jsonl. Throws Error(kDamaged) naming `origin` for anything else.
Record parse_jsonl(std::string_view line, const std::string& origin);

/// All records of a file, in order; a last line without its end is not one. Throws as above, naming
/// file and line.
std::vector<Record> read_jsonl(const std::filesystem::path& path);

/// metrics.jsonl: every record is with the system when write() returns.
class JsonlSink : public Sink {
 public:
  /// Opens for appending. What a run that goes on after `last_step` will write again is removed
  /// first, atomically: records of later steps, and a last line that a crash cut off. A new run
  /// gives -1. Throws Error(kDamaged) when an earlier line is not a record.
  JsonlSink(const std::filesystem::path& path, std::int64_t last_step);

  void write(const Record& record) override;
  void flush() override { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace atl::metrics
