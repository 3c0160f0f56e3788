#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/files/append_file.h"
#include "atoll/metrics/sink.h"

namespace atl::metrics {

/// A record as one line of JSON, without the line end: {"step":5,"time":1763700000.25,"loss":2.5}.
/// JSON has no NaN and no infinities: these become the strings "NaN", "Infinity", "-Infinity".
std::string to_jsonl(const Record& record);

/// The reverse of to_jsonl. Throws Error(kDamaged) naming `origin` for anything else.
Record parse_jsonl(std::string_view line, const std::string& origin);

/// All records of a file, in order. Ignores a last line without a line end. Throws as parse_jsonl,
/// naming file and line.
std::vector<Record> read_jsonl(const std::filesystem::path& path);

/// Writes metrics.jsonl. When write() returns, the operating system has the record; flush() waits
/// for the disk.
class JsonlSink : public Sink {
 public:
  /// Opens for appending, for a run that goes on after `last_step`; a new run gives -1. First
  /// removes records of later steps, which the run will write again, and a last line without a line
  /// end; for that the file is replaced atomically. Throws Error(kDamaged) when a complete line is
  /// not a record.
  JsonlSink(const std::filesystem::path& path, std::int64_t last_step);

  void write(const Record& record) override;
  void flush() override { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace atl::metrics
