#include "atoll/watch/series.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace atl::watch {

namespace {

constexpr std::size_t kMaxLevels = 10;  // the last level has 16 million records per bucket

const std::vector<Bucket> kNoBuckets;

}  // namespace

void Bucket::add(double value) {
  if (!std::isfinite(value)) {
    ++nonfinite;
    return;
  }
  if (finite == 0) first = value;
  last = value;
  min = std::min(min, value);
  max = std::max(max, value);
  sum += value;
  ++finite;
}

void Bucket::add(const Bucket& later) {
  nonfinite += later.nonfinite;
  if (later.finite == 0) return;
  if (finite == 0) first = later.first;
  last = later.last;
  min = std::min(min, later.min);
  max = std::max(max, later.max);
  sum += later.sum;
  finite += later.finite;
}

void Rows::add(std::uint32_t series, double value) {
  const std::uint64_t bit = std::uint64_t{1} << (places.size() - 1);
  auto column = std::ranges::find(columns, series, &Column::series);
  if (column == columns.end()) {
    columns.push_back({.series = series});
    column = columns.end() - 1;
  }
  if ((column->mask & bit) != 0) {
    column->values.back() = value;  // the line has this name twice: the last value counts
    return;
  }
  column->mask |= bit;
  column->values.push_back(value);
}

const Column* Rows::find(std::uint32_t series) const {
  const auto column = std::ranges::find(columns, series, &Column::series);
  return column == columns.end() ? nullptr : &*column;
}

std::size_t Rows::bytes() const {
  std::size_t bytes = sizeof(Rows) + places.capacity() * sizeof(Place);
  for (const Column& column : columns) {
    bytes += sizeof(Column) + column.values.capacity() * sizeof(double);
  }
  return bytes;
}

void Pyramid::add(const Bucket& block) {
  std::uint32_t index = block.index;
  for (std::size_t level = 0; level < kMaxLevels; ++level) {
    if (level == levels_.size()) {
      // A level above a single bucket would have the same values.
      if (level > 0 && levels_[level - 1].size() < 2) break;
      levels_.emplace_back();
      if (level > 0) {
        for (const Bucket& lower : levels_[level - 1]) {
          const std::uint32_t above = lower.index / kLevelFactor;
          if (levels_[level].empty() || levels_[level].back().index != above) {
            levels_[level].push_back({.index = above});
          }
          levels_[level].back().add(lower);
        }
        index /= kLevelFactor;
        continue;  // the level below has `block` already
      }
    } else if (level > 0) {
      index /= kLevelFactor;
    }
    std::vector<Bucket>& buckets = levels_[level];
    if (buckets.empty() || buckets.back().index != index) buckets.push_back({.index = index});
    buckets.back().add(block);
  }
}

const std::vector<Bucket>& Pyramid::level(std::size_t& records) const {
  std::size_t size = kBlockRecords;
  if (levels_.empty()) {
    records = size;
    return kNoBuckets;
  }
  std::size_t level = 0;
  while (level + 1 < levels_.size() && size * kLevelFactor <= records) {
    size *= kLevelFactor;
    ++level;
  }
  records = size;
  return levels_[level];
}

std::size_t Pyramid::bytes() const {
  std::size_t bytes = 0;
  for (const auto& level : levels_) bytes += level.capacity() * sizeof(Bucket);
  return bytes;
}

}  // namespace atl::watch
