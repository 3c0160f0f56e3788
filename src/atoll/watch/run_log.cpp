#include "atoll/watch/run_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "atoll/base/check.h"

namespace atl::watch {

namespace {

constexpr std::size_t kTailBytes = 64;
constexpr std::size_t kReadBytes = 1 << 20;
constexpr std::size_t kMaxTextBytes = 64 << 10;  // of one text of a record
constexpr std::size_t kMaxSeries = 4096;
constexpr std::size_t kMaxPauses = 10'000;
// A time between records is a pause when it is so many times the mean, and at least so long.
constexpr double kPauseFactor = 10;
constexpr double kShortestPauseS = 30;

double& on(Place& place, Axis axis) {
  return place[static_cast<std::size_t>(axis)];
}

std::string read_at(int fd, std::uint64_t offset, std::size_t bytes) {
  std::string text(bytes, '\0');
  const ssize_t count = ::pread(fd, text.data(), bytes, static_cast<off_t>(offset));
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

}  // namespace

RunLog::RunLog(std::filesystem::path path, std::size_t cache_bytes)
    : path_(std::move(path)), cache_bytes_(cache_bytes) {}

void RunLog::reset() {
  pending_.clear();
  tail_.clear();
  skips_line_ = false;
  mean_interval_s_ = 0;
  file_.close();
  offset_ = file_bytes_ = num_records_ = bad_lines_ = open_offset_ = 0;
  ++resets_;
  first_ = last_ = {};
  series_.clear();
  names_.clear();
  blocks_.clear();
  open_ = {};
  texts_.clear();
  pauses_.clear();
  cache_.clear();
  used_.clear();
  cached_bytes_ = 0;
}

// Whether the file no longer has what was read from it.
bool RunLog::is_replaced() const {
  if (file_bytes_ < offset_) return true;
  return !tail_.empty() && read_at(file_.get(), offset_ - tail_.size(), tail_.size()) != tail_;
}

// Looks at the file as it is now. False: there is nothing new to read.
bool RunLog::look() {
  struct stat status {};
  const std::lock_guard lock(mutex_);
  if (::stat(path_.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    // The records that were read stay.
    return std::exchange(is_gone_, true) ? false : num_records_ > 0;
  }
  is_gone_ = false;
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  const bool is_same = file_.open() && device_ == status.st_dev && inode_ == status.st_ino;
  if (is_same && bytes == file_bytes_) return false;
  file_bytes_ = bytes;
  if (file_.open() && (!is_same || is_replaced())) {
    reset();
    file_bytes_ = bytes;
  }
  if (!file_.open()) {
    file_ = Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    device_ = status.st_dev;
    inode_ = status.st_ino;
    // Made from the inode, so that a restarted server gives the same file the same generation and
    // the page keeps what it has.
    constexpr std::uint64_t kMask = (std::uint64_t{1} << 40) - 1;  // JavaScript has 53 bits
    generation_ = (inode_ & kMask) * 1024 + resets_ % 1024;
  }
  return file_.open();
}

bool RunLog::update(std::size_t max_bytes) {
  const bool has_changed = look();
  bool has_read = false;
  for (std::size_t left = max_bytes; left > 0;) {
    // No lock: only this thread changes these members.
    if (!file_.open() || is_gone_ || offset_ >= file_bytes_) break;
    const std::uint64_t unread = file_bytes_ - offset_;
    const std::string text =
        read_at(file_.get(), offset_, std::min<std::uint64_t>({kReadBytes, left, unread}));
    if (text.empty()) break;  // the file was cut meanwhile; the next look() notices
    left -= std::min(left, text.size());
    const std::lock_guard lock(mutex_);
    take_lines(text);
    offset_ += text.size();
    tail_ =
        (tail_ + text)
            .substr(tail_.size() + text.size() - std::min(kTailBytes, tail_.size() + text.size()));
    has_read = true;
  }
  return has_changed || has_read;
}

bool RunLog::is_read() const {
  const std::lock_guard lock(mutex_);
  return is_gone_ || offset_ >= file_bytes_;
}

void RunLog::take_lines(std::string_view text) {
  std::uint64_t at = offset_;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::size_t size = std::min(end, text.size());
    const bool is_whole = end != text.npos;
    if (!skips_line_ && pending_.size() + size > kMaxLineBytes) {
      skips_line_ = true;
      pending_.clear();
    }
    if (!skips_line_ && (!is_whole || !pending_.empty())) pending_ += text.substr(0, size);
    if (!is_whole) return;
    const std::uint64_t line_end = at + size + 1;
    if (skips_line_) {
      ++bad_lines_;
      if (open_.places.empty()) open_offset_ = line_end;
    } else if (pending_.empty()) {
      take_line(text.substr(0, size), at, line_end);
    } else {
      take_line(pending_, line_end - pending_.size() - 1, line_end);
    }
    pending_.clear();
    skips_line_ = false;
    at = line_end;
    text.remove_prefix(size + 1);
  }
}

std::uint32_t RunLog::series_of(std::string_view name) {
  const auto [found, is_new] =
      names_.emplace(std::string(name), static_cast<std::uint32_t>(series_.size()));
  if (is_new) series_.push_back({.name = std::string(name)});
  return found->second;
}

// The place of a new record on the axes; a value that the line lacks is that of the last record.
Place RunLog::place_of(const MetricsLine& line) {
  Place place = last_;
  on(place, Axis::kStep) = static_cast<double>(line.step);
  if (line.time_s != 0) on(place, Axis::kTime) = line.time_s;
  for (const auto& [name, value] : line.numbers) {
    if (name == "tokens" && std::isfinite(value)) on(place, Axis::kTokens) = value;
  }
  if (num_records_ == 0) return place;
  const double interval = on(place, Axis::kTime) - on(last_, Axis::kTime);
  if (interval <= 0) return place;
  const bool is_pause = mean_interval_s_ > 0 && interval > kShortestPauseS &&
                        interval > kPauseFactor * mean_interval_s_;
  if (is_pause) {
    if (pauses_.size() < kMaxPauses) pauses_.push_back(place);
    return place;
  }
  constexpr double kWeight = 0.1;  // weight of the newest interval in the mean
  mean_interval_s_ += (mean_interval_s_ == 0 ? 1 : kWeight) * (interval - mean_interval_s_);
  on(place, Axis::kActive) += interval;
  return place;
}

void RunLog::take_line(std::string_view text, std::uint64_t offset, std::uint64_t end) {
  MetricsLine line;
  if (!parser_.parse(text, line)) {
    ++bad_lines_;
    return;
  }
  if (open_.places.empty()) open_offset_ = offset;
  const Place place = place_of(line);
  if (num_records_ == 0) first_ = place;
  last_ = place;
  open_.places.push_back(place);
  for (const auto& [name, value] : line.numbers) {
    if (series_.size() >= kMaxSeries && !names_.contains(std::string(name))) continue;
    const std::uint32_t number = series_of(name);
    Series& series = series_[number];
    ++series.count;
    series.last = value;
    series.whole.add(value);
    open_.add(number, value);
    if (!std::isfinite(value) && series.nonfinite.size() < kMaxNonfinite) {
      series.nonfinite.push_back({num_records_, place});
    }
  }
  for (const auto& [name, value] : line.texts) {
    texts_.push_back(
        {num_records_, place, std::string(name), std::string(value.substr(0, kMaxTextBytes))});
    if (texts_.size() > kMaxTexts) texts_.pop_front();
  }
  ++num_records_;
  if (open_.places.size() == kBlockRecords) close_block(end);
}

void RunLog::close_block(std::uint64_t end) {
  const std::uint32_t number = num_blocks();
  blocks_.push_back({open_offset_, end, open_.places.front(), open_.places.back()});
  for (const Column& column : open_.columns) {
    Bucket bucket{.index = number};
    for (const double value : column.values) bucket.add(value);
    series_[column.series].pyramid.add(bucket);
  }
  remember(number, std::exchange(open_, {}));
}

void RunLog::remember(std::uint32_t block, Rows rows) const {
  cached_bytes_ += rows.bytes();
  used_.push_front(block);
  cache_.emplace(block, Cached{std::move(rows), used_.begin()});
  while (cached_bytes_ > cache_bytes_ && used_.size() > 1) {
    const auto oldest = cache_.find(used_.back());
    cached_bytes_ -= oldest->second.rows.bytes();
    cache_.erase(oldest);
    used_.pop_back();
  }
}

const Rows& RunLog::rows(std::uint32_t block) const {
  if (block == num_blocks()) return open_;
  const auto found = cache_.find(block);
  if (found == cache_.end()) {
    remember(block, read_block(block));
    return cache_.at(block).rows;
  }
  used_.splice(used_.begin(), used_, found->second.used);
  return found->second.rows;
}

// Reads a block again from the file. A file that was changed meanwhile may give fewer or other
// records; the next update() notices that.
Rows RunLog::read_block(std::uint32_t block) const {
  const Block& where = blocks_[block];
  const std::string text = read_at(file_.get(), where.offset, where.end - where.offset);
  Rows rows;
  Place place = where.first;
  MetricsLine line;
  std::string_view rest = text;
  while (!rest.empty() && rows.places.size() < kBlockRecords) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view one = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (one.size() > kMaxLineBytes || !block_parser_.parse(one, line)) continue;
    on(place, Axis::kStep) = static_cast<double>(line.step);
    const double before = on(place, Axis::kTime);
    if (line.time_s != 0) on(place, Axis::kTime) = line.time_s;
    const double now = on(place, Axis::kTime);
    const bool is_pause =
        std::ranges::any_of(pauses_, [&](Place pause) { return on(pause, Axis::kTime) == now; });
    if (now > before && !is_pause) on(place, Axis::kActive) += now - before;
    rows.places.push_back(place);
    for (const auto& [name, value] : line.numbers) {
      if (name == "tokens" && std::isfinite(value)) {
        on(place, Axis::kTokens) = on(rows.places.back(), Axis::kTokens) = value;
      }
      const auto known = names_.find(std::string(name));
      if (known != names_.end()) rows.add(known->second, value);
    }
  }
  return rows;
}

RunLog::Summary RunLog::summary() const {
  const std::lock_guard lock(mutex_);
  Summary summary{.generation = generation_,
                  .num_records = num_records_,
                  .bad_lines = bad_lines_,
                  .file_bytes = file_bytes_,
                  .read_bytes = offset_,
                  .is_gone = is_gone_,
                  .first = first_,
                  .last = last_,
                  .pauses = pauses_};
  for (const Series& series : series_) {
    const Bucket& whole = series.whole;
    summary.series.push_back({.name = series.name,
                              .count = series.count,
                              .last = series.last,
                              .min = whole.finite > 0 ? whole.min : 0,
                              .max = whole.finite > 0 ? whole.max : 0});
  }
  return summary;
}

std::vector<LoggedText> RunLog::texts(std::uint64_t since) const {
  const std::lock_guard lock(mutex_);
  std::vector<LoggedText> result;
  for (const LoggedText& text : texts_) {
    if (text.record >= since) result.push_back(text);
  }
  return result;
}

std::size_t RunLog::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = cached_bytes_ + blocks_.capacity() * sizeof(Block) + open_.bytes();
  for (const Series& series : series_) {
    bytes +=
        sizeof(Series) + series.pyramid.bytes() + series.nonfinite.capacity() * sizeof(Nonfinite);
  }
  return bytes;
}

}  // namespace atl::watch
