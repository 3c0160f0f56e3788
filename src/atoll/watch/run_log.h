#pragma once

// metrics.jsonl of a run, for charts of any part of it.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/base/processes/process.h"
#include "atoll/watch/metrics_line.h"
#include "atoll/watch/series.h"

namespace atl::watch {

/// A value that is no number, with its place.
struct Nonfinite {
  std::uint64_t record = 0;
  Place place{};
};

/// A text in a record.
struct LoggedText {
  std::uint64_t record = 0;
  Place place{};
  std::string name;
  std::string text;
};

/// What a chart asks for.
struct SeriesQuery {
  std::vector<std::string> names;
  Axis axis = Axis::kStep;
  double from = -std::numeric_limits<double>::infinity();
  double to = std::numeric_limits<double>::infinity();
  std::size_t points = 1000;  ///< most of a series, but for one that is cut in two
  std::uint64_t since = 0;    ///< records before this one are known already
  std::size_t size = 0;       ///< records of a bucket, as they are known; 0: to be chosen
};

/// A part of a series as points (size 1) or buckets of so many records, empty ones left out.
struct SeriesPart {
  std::string name;
  std::vector<std::uint64_t> records;  ///< the first of each
  std::vector<double> x0, x1;          ///< of the first and the last record of each
  std::vector<double> min, max, mean;  ///< points: all are the value
  double first = 0, last = 0;          ///< finite values of the part; 0 where there are none
  std::vector<Nonfinite> nonfinite;
};

/// The answer.
struct SeriesAnswer {
  std::uint64_t generation = 0;
  std::uint64_t num_records = 0;
  Axis axis = Axis::kStep;
  std::size_t size = 1;      ///< records of a bucket
  std::uint64_t begins = 0;  ///< what is known from this record on is to be replaced
  std::vector<SeriesPart> series;
};

/// What a list of runs shows of one series.
struct SeriesSummary {
  std::string name;
  std::uint64_t count = 0;
  double last = 0;  ///< NaN where it is
  double min = 0, max = 0;
};

/// Reads a file that grows. Kept in memory: buckets of kBlockRecords records and more, the places
/// of these in the file, and whole records as far as a budget goes; others are read again when
/// somebody looks closely. The file may be cut, replaced or removed meanwhile: what is there
/// counts, and `generation` says that it was read anew. A line that is no record is counted and
/// left out. One thread calls update(), any thread the others.
class RunLog {
 public:
  RunLog(std::filesystem::path path, std::size_t cache_bytes);

  /// Reads on, at most so many bytes. True when something has changed.
  bool update(std::size_t max_bytes);
  /// Whether all that the file had at the last update is read.
  bool is_read() const;

  /// What there is so far.
  struct Summary {
    std::uint64_t generation = 0;
    std::uint64_t num_records = 0;
    std::uint64_t bad_lines = 0;
    std::uint64_t file_bytes = 0;
    std::uint64_t read_bytes = 0;
    bool is_gone = false;
    Place first{}, last{};
    std::vector<SeriesSummary> series;
    std::vector<Place> pauses;  ///< records that came after a pause: another start
  };
  Summary summary() const;
  SeriesAnswer query(const SeriesQuery& query) const;
  /// Texts from record `since` on, the newest kMaxTexts.
  std::vector<LoggedText> texts(std::uint64_t since) const;
  /// The points of one series, all of them, for lists of events; at most `most`, the last.
  std::vector<std::pair<Place, double>> points(std::string_view name, std::size_t most) const;
  /// Bytes that this holds.
  std::size_t bytes() const;

  static constexpr std::size_t kMaxTexts = 1000;
  static constexpr std::size_t kMaxNonfinite = 10'000;
  static constexpr std::size_t kMaxLineBytes = 16 << 20;

 private:
  struct Series {
    std::string name;
    std::uint64_t count = 0;
    Bucket whole;
    double last = 0;
    Pyramid pyramid;
    std::vector<Nonfinite> nonfinite;
  };
  // A whole block.
  struct Block {
    std::uint64_t offset = 0;  // of its first line
    std::uint64_t end = 0;
    Place first{}, last{};
  };
  struct Cached {
    Rows rows;
    std::list<std::uint32_t>::iterator used;
  };

  bool look();
  void reset();
  bool is_replaced() const;
  void take_lines(std::string_view text);
  void take_line(std::string_view text, std::uint64_t offset, std::uint64_t end);
  void close_block(std::uint64_t end);
  std::uint32_t series_of(std::string_view name);
  Place place_of(const MetricsLine& line);
  const Rows& rows(std::uint32_t block) const;
  void remember(std::uint32_t block, Rows rows) const;
  Rows read_block(std::uint32_t block) const;
  std::size_t choose_size(const SeriesQuery& query, std::uint64_t records) const;
  void add_points(const SeriesQuery& query, std::uint32_t series, std::uint32_t first,
                  std::uint32_t last, SeriesAnswer& answer, SeriesPart& part) const;
  void add_buckets(std::uint32_t series, std::uint32_t first, std::uint32_t last,
                   const SeriesAnswer& answer, SeriesPart& part) const;
  std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(blocks_.size()); }

  const std::filesystem::path path_;
  const std::size_t cache_bytes_;

  // Of the updating thread alone.
  MetricsLineParser parser_;
  std::string pending_;         // a line that has no end yet
  bool skips_line_ = false;     // that is too long
  std::string tail_;            // the last bytes before offset_, to notice another file
  double mean_interval_s_ = 0;  // between records

  mutable std::mutex mutex_;
  Fd file_;
  std::uint64_t device_ = 0, inode_ = 0;
  std::uint64_t offset_ = 0;  // read so far
  std::uint64_t file_bytes_ = 0;
  std::uint64_t generation_ = 0;
  std::uint64_t resets_ = 0;
  std::uint64_t num_records_ = 0;
  std::uint64_t bad_lines_ = 0;
  bool is_gone_ = false;
  Place first_{}, last_{};
  std::vector<Series> series_;
  std::unordered_map<std::string, std::uint32_t> names_;
  std::vector<Block> blocks_;
  Rows open_;  // the records after the last whole block
  std::uint64_t open_offset_ = 0;
  std::deque<LoggedText> texts_;
  std::vector<Place> pauses_;
  mutable std::unordered_map<std::uint32_t, Cached> cache_;
  mutable std::list<std::uint32_t> used_;  // the last used first
  mutable std::size_t cached_bytes_ = 0;
  mutable MetricsLineParser block_parser_;
};

}  // namespace atl::watch
