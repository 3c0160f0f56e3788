#pragma once

// Reads a run's metrics.jsonl as it grows, and answers queries of charts for any part of it.

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

/// A NaN or infinite value of a series: its record and its place on the axes.
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

/// A query of a chart.
struct SeriesQuery {
  std::vector<std::string> names;
  Axis axis = Axis::kStep;
  double from = -std::numeric_limits<double>::infinity();
  double to = std::numeric_limits<double>::infinity();
  std::size_t points = 1000;  ///< about the most points or buckets of a series
  std::uint64_t since = 0;    ///< the chart knows the records before this one already
  std::size_t size = 0;       ///< records per bucket that the chart has; 0: choose by `points`
};

/// A part of a series as points (SeriesAnswer::size 1) or buckets. Buckets without a finite value
/// are left out.
struct SeriesPart {
  std::string name;
  std::vector<std::uint64_t> records;  ///< number of the first record of each bucket
  std::vector<double> x0, x1;          ///< places of the first and last record of each bucket
  std::vector<double> min, max, mean;  ///< of each bucket; of a point all are its value
  double first = 0, last = 0;          ///< first and last finite value; 0 where there are none
  std::vector<Nonfinite> nonfinite;
};

/// The answer to a SeriesQuery.
struct SeriesAnswer {
  std::uint64_t generation = 0;
  std::uint64_t num_records = 0;
  Axis axis = Axis::kStep;
  std::size_t size = 1;      ///< records per bucket
  std::uint64_t begins = 0;  ///< the chart must replace what it has from this record on
  std::vector<SeriesPart> series;
};

/// What a list of runs shows of one series.
struct SeriesSummary {
  std::string name;
  std::uint64_t count = 0;
  double last = 0;  ///< the last value, which may be NaN or infinite
  double min = 0, max = 0;
};

/// Reads a file that grows. Keeps in memory buckets of kBlockRecords records and more, the offset
/// of each block in the file, and up to `cache_bytes` of records, of the blocks that were used
/// last. A query that needs the records of other blocks reads these again. When the file is cut or
/// replaced, it is read anew and `generation` changes; when it is removed, what was read stays.
/// Lines that are no records are counted and left out. One thread calls update(); any thread may
/// call the other functions.
class RunLog {
 public:
  RunLog(std::filesystem::path path, std::size_t cache_bytes);

  /// Reads on, at most `max_bytes`. True when something has changed.
  bool update(std::size_t max_bytes);
  /// Whether the file is read up to its size at the last update.
  bool is_read() const;

  /// The state so far.
  struct Summary {
    std::uint64_t generation = 0;
    std::uint64_t num_records = 0;
    std::uint64_t bad_lines = 0;
    std::uint64_t file_bytes = 0;
    std::uint64_t read_bytes = 0;
    bool is_gone = false;
    Place first{}, last{};
    std::vector<SeriesSummary> series;
    std::vector<Place> pauses;  ///< of the first record after each pause, as after a new start
  };
  Summary summary() const;
  SeriesAnswer query(const SeriesQuery& query) const;
  /// The texts in records from `since` on; only the newest kMaxTexts are kept.
  std::vector<LoggedText> texts(std::uint64_t since) const;
  /// The last `most` points of one series, not put into buckets; for lists of events.
  std::vector<std::pair<Place, double>> points(std::string_view name, std::size_t most) const;
  /// The memory that this object holds, in bytes.
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
  // A complete block.
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

  // Used only by the thread that calls update().
  MetricsLineParser parser_;
  std::string pending_;         // the begin of a line that has no line end yet
  bool skips_line_ = false;     // the present line is too long
  std::string tail_;            // the last bytes before offset_, to notice another content
  double mean_interval_s_ = 0;  // between records

  mutable std::mutex mutex_;
  Fd file_;
  std::uint64_t device_ = 0, inode_ = 0;
  std::uint64_t offset_ = 0;  // the file is read up to here
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
  Rows open_;  // the records after the last complete block
  std::uint64_t open_offset_ = 0;
  std::deque<LoggedText> texts_;
  std::vector<Place> pauses_;
  mutable std::unordered_map<std::uint32_t, Cached> cache_;
  mutable std::list<std::uint32_t> used_;  // the blocks in cache_, last used first
  mutable std::size_t cached_bytes_ = 0;
  mutable MetricsLineParser block_parser_;
};

}  // namespace atl::watch
