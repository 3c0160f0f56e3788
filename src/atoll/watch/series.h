#pragma once

// The numbers of metrics in blocks and buckets, so that charts of a run of any length need little
// memory.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace atl::watch {

/// Records per block. A block is read from the file at once, and is the smallest bucket in memory.
inline constexpr std::size_t kBlockRecords = 64;
/// A bucket covers this many buckets of the level below.
inline constexpr std::size_t kLevelFactor = 4;

/// The quantity on a chart's x axis.
enum class Axis : std::uint8_t {
  kStep,
  kTokens,
  kTime,    ///< seconds since 1970
  kActive,  ///< seconds of training, without pauses such as between two starts
};
inline constexpr std::size_t kNumAxes = 4;

/// The coordinates of a record on all axes, indexed by Axis.
using Place = std::array<double, kNumAxes>;

/// The values of one series in some consecutive records.
struct Bucket {
  std::uint32_t index = 0;      ///< number of its first record / records per bucket
  std::uint32_t finite = 0;     ///< how many finite values
  std::uint32_t nonfinite = 0;  ///< how many NaN and infinities; all else is of finite values
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double first = 0;
  double last = 0;

  void add(double value);
  void add(const Bucket& later);
};

/// The values of one series in a block. Bit i of `mask` says whether record i has a value.
struct Column {
  std::uint32_t series = 0;
  std::uint64_t mask = 0;
  std::vector<double> values;  ///< one per set bit, in the order of records
};

/// The records of a block.
struct Rows {
  std::vector<Place> places;
  std::vector<Column> columns;

  void add(std::uint32_t series, double value);  ///< adds a value to the last record
  const Column* find(std::uint32_t series) const;
  std::size_t bytes() const;
};

/// The buckets of one series, in levels: level k has buckets of kBlockRecords * kLevelFactor^k
/// records.
class Pyramid {
 public:
  /// Adds a block; its `index` is the block's number. Blocks must come in order.
  void add(const Bucket& block);
  /// The coarsest level whose buckets have at most `records` records. Sets `records` to the bucket
  /// size of that level. The reference is valid until the next add().
  const std::vector<Bucket>& level(std::size_t& records) const;
  std::size_t bytes() const;

 private:
  std::vector<std::vector<Bucket>> levels_;
};

}  // namespace atl::watch
