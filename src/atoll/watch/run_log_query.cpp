// The queries of charts to a RunLog.

#include <algorithm>
#include <bit>
#include <cmath>

#include "atoll/watch/run_log.h"

namespace atl::watch {

namespace {

double on(const Place& place, Axis axis) {
  return place[static_cast<std::size_t>(axis)];
}

// Calls fn(record within the block, value) for each value of a column.
template <typename Fn>
void for_each_value(const Column& column, Fn&& fn) {
  std::size_t i = 0;
  for (std::uint64_t mask = column.mask; mask != 0; mask &= mask - 1) {
    fn(static_cast<std::size_t>(std::countr_zero(mask)), column.values[i++]);
  }
}

void push(SeriesPart& part, std::uint64_t record, double x0, double x1, const Bucket& bucket) {
  if (bucket.finite == 0) return;
  if (part.records.empty()) part.first = bucket.first;
  part.last = bucket.last;
  part.records.push_back(record);
  part.x0.push_back(x0);
  part.x1.push_back(x1);
  part.min.push_back(bucket.min);
  part.max.push_back(bucket.max);
  part.mean.push_back(bucket.sum / bucket.finite);
}

// The smallest power of two such that `records` make no more than `points` buckets of this size.
std::size_t size_for(std::uint64_t records, std::size_t points) {
  std::size_t size = 1;
  while (records > points * size) size *= 2;
  return size;
}

}  // namespace

std::size_t RunLog::choose_size(const SeriesQuery& query, std::uint64_t records) const {
  // The bucket size of the pyramid's last level.
  constexpr std::size_t kMost = std::size_t{1} << 24;
  if (query.size == 0)
    return std::min(kMost, size_for(records, std::max<std::size_t>(query.points, 1)));
  return std::min(kMost, std::bit_floor(query.size));
}

SeriesAnswer RunLog::query(const SeriesQuery& query) const {
  const std::lock_guard lock(mutex_);
  SeriesAnswer answer{.generation = generation_, .num_records = num_records_, .axis = query.axis};
  // The blocks that touch the range. All blocks are checked, because steps may fall in a file that
  // was put together by hand. With one block before and one after, lines reach the chart's edges.
  std::uint32_t first = num_blocks();
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < num_blocks(); ++i) {
    if (on(blocks_[i].last, query.axis) < query.from ||
        on(blocks_[i].first, query.axis) > query.to) {
      continue;
    }
    first = std::min(first, i);
    last = std::max(last, i + 1);
  }
  if (!open_.places.empty() && on(open_.places.front(), query.axis) <= query.to &&
      on(open_.places.back(), query.axis) >= query.from) {
    last = num_blocks() + 1;
  }
  if (first > 0) --first;
  last = std::clamp(last + 1, std::min(first + 1, num_blocks() + 1), num_blocks() + 1);
  const std::uint64_t all =
      std::min<std::uint64_t>(num_records_, std::uint64_t{last} * kBlockRecords) -
      std::min<std::uint64_t>(num_records_, std::uint64_t{first} * kBlockRecords);
  answer.size = choose_size(query, all);
  answer.begins = query.since / answer.size * answer.size;
  first = std::max(first, static_cast<std::uint32_t>(answer.begins / kBlockRecords));
  for (const std::string& name : query.names) {
    const auto known = names_.find(name);
    if (known == names_.end()) continue;
    SeriesPart part{.name = name};
    if (answer.size < kBlockRecords) {
      add_points(query, known->second, first, last, answer, part);
    } else {
      add_buckets(known->second, first, last, answer, part);
    }
    for (const Nonfinite& one : series_[known->second].nonfinite) {
      const bool is_in = one.record >= answer.begins && on(one.place, query.axis) >= query.from &&
                         on(one.place, query.axis) <= query.to;
      if (is_in) part.nonfinite.push_back(one);
    }
    answer.series.push_back(std::move(part));
  }
  return answer;
}

// Adds points, or buckets smaller than a block.
void RunLog::add_points(const SeriesQuery& query, std::uint32_t series, std::uint32_t first,
                        std::uint32_t last, SeriesAnswer& answer, SeriesPart& part) const {
  for (std::uint32_t i = first; i < last; ++i) {
    const Rows& rows = this->rows(i);
    const Column* column = rows.find(series);
    if (column == nullptr) continue;
    Bucket bucket;
    std::size_t begin = 0;  // the bucket's first record, counted in the block
    const auto flush = [&](std::size_t next) {
      const std::size_t end = std::min(begin + answer.size, rows.places.size());
      if (end > begin) {
        push(part, std::uint64_t{i} * kBlockRecords + begin, on(rows.places[begin], query.axis),
             on(rows.places[end - 1], query.axis), bucket);
      }
      bucket = {};
      begin = next;
    };
    for_each_value(*column, [&](std::size_t row, double value) {
      const std::uint64_t record = std::uint64_t{i} * kBlockRecords + row;
      if (record < answer.begins || row >= rows.places.size()) return;
      if (row >= begin + answer.size) flush(row / answer.size * answer.size);
      bucket.add(value);
    });
    flush(0);
  }
}

void RunLog::add_buckets(std::uint32_t series, std::uint32_t first, std::uint32_t last,
                         const SeriesAnswer& answer, SeriesPart& part) const {
  const std::uint64_t begin = std::max<std::uint64_t>(
      answer.begins, std::uint64_t{first} * kBlockRecords / answer.size * answer.size);
  const std::uint64_t end = std::uint64_t{last} * kBlockRecords;
  std::size_t level_size = answer.size;
  const std::vector<Bucket>& level = series_[series].pyramid.level(level_size);
  const std::size_t factor = answer.size / level_size;
  Bucket sum;
  const auto flush = [&](std::uint64_t index) {
    const std::uint64_t record = index * answer.size;
    const auto place = [&](std::uint64_t r, bool is_first) -> const Place& {
      const auto block = static_cast<std::uint32_t>(r / kBlockRecords);
      if (block >= num_blocks()) return is_first ? open_.places.front() : open_.places.back();
      return is_first ? blocks_[block].first : blocks_[block].last;
    };
    const std::uint64_t final = std::min(record + answer.size, num_records_) - 1;
    push(part, record, on(place(record, true), answer.axis), on(place(final, false), answer.axis),
         sum);
    sum = {};
  };
  std::uint64_t present = 0;
  const auto add = [&](std::uint64_t index, const Bucket& bucket) {
    if (index != present && (sum.finite > 0 || sum.nonfinite > 0)) flush(present);
    present = index;
    sum.add(bucket);
  };
  for (const Bucket& bucket : level) {
    const std::uint64_t record = std::uint64_t{bucket.index} * level_size;
    if (record + level_size <= begin || record >= end) continue;
    add(bucket.index / factor, bucket);
  }
  // The records after the last complete block.
  if (const Column* column = last > num_blocks() ? open_.find(series) : nullptr) {
    Bucket bucket;
    for (const double value : column->values) bucket.add(value);
    add(std::uint64_t{num_blocks()} * kBlockRecords / answer.size, bucket);
  }
  if (sum.finite > 0) flush(present);
}

std::vector<std::pair<Place, double>> RunLog::points(std::string_view name,
                                                     std::size_t most) const {
  const std::lock_guard lock(mutex_);
  const auto known = names_.find(std::string(name));
  if (known == names_.end()) return {};
  std::deque<std::pair<Place, double>> result;
  const auto take = [&](std::uint32_t block) {
    const Rows& rows = this->rows(block);
    const Column* column = rows.find(known->second);
    if (column == nullptr) return;
    for_each_value(*column, [&](std::size_t row, double value) {
      if (row < rows.places.size()) result.emplace_back(rows.places[row], value);
      if (result.size() > most) result.pop_front();
    });
  };
  std::size_t size = kBlockRecords;
  const std::vector<Bucket>& level = series_[known->second].pyramid.level(size);
  // The level has no buckets for blocks without a value of this series, so these are not read.
  const std::size_t skipped = level.size() > most ? level.size() - most : 0;
  for (std::size_t i = skipped; i < level.size(); ++i) take(level[i].index);
  take(num_blocks());
  return {result.begin(), result.end()};
}

}  // namespace atl::watch
