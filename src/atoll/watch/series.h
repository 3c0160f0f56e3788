#pragma once

// The numbers of one metric, in blocks and buckets: what is kept in memory of a run of any length.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace atl::watch {

/// Records of a block: what is read from the file at once, and the smallest bucket that is kept.
inline constexpr std::size_t kBlockRecords = 64;
/// Each level of buckets has this many of the level below in one.
inline constexpr std::size_t kLevelFactor = 4;

/// What a chart can have on its x axis.
enum class Axis : std::uint8_t {
  kStep,
  kTokens,
  kTime,    ///< seconds since 1970
  kActive,  ///< seconds of training, without the time between two starts
};
inline constexpr std::size_t kNumAxes = 4;

/// Where a record is on each axis.
using Place = std::array<double, kNumAxes>;

/// The values of one series in some consecutive records.
struct Bucket {
  std::uint32_t index = 0;      ///< the first record's number / records of a bucket
  std::uint32_t finite = 0;     ///< how many values
  std::uint32_t nonfinite = 0;  ///< NaN and infinities, which count nowhere else
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double first = 0;  ///< finite
  double last = 0;   ///< finite

  void add(double value);
  void add(const Bucket& later);
};

/// The values of one series in a block; bit i of `mask`: record i has one.
struct Column {
  std::uint32_t series = 0;
  std::uint64_t mask = 0;
  std::vector<double> values;  ///< of the set bits, in their order
};

/// A block's records, as the file has them.
struct Rows {
  std::vector<Place> places;
  std::vector<Column> columns;

  void add(std::uint32_t series, double value);  ///< to the last record
  const Column* find(std::uint32_t series) const;
  std::size_t bytes() const;
};

/// Buckets of whole blocks, on levels of kBlockRecords * kLevelFactor^k records.
class Pyramid {
 public:
  /// `index` of the bucket is the block's number; blocks come in their order.
  void add(const Bucket& block);
  /// The coarsest level whose buckets have no more than `records`, a multiple of a level's; its
  /// size is in `records` afterwards.
  const std::vector<Bucket>& level(std::size_t& records) const;
  std::size_t bytes() const;

 private:
  std::vector<std::vector<Bucket>> levels_;
};

}  // namespace atl::watch
