#include "atoll/parallel/state/whole_flat.h"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace atl::parallel {

namespace {

// Adds the runs of one parameter.
class RunWriter {
 public:
  RunWriter(const nn::Param& param, std::int64_t local, std::int64_t whole, bool counts,
            std::vector<FlatRun>& runs)
      : param_(param), local_(local), whole_(whole), counts_(counts), runs_(runs) {}

  void write() {
    const Shape& shape = param_.spec.shape;
    if (!param_.cut) return add(0, shape.num_elements());
    const Shape& whole = param_.cut->whole.spec.shape;
    const std::int64_t columns = whole.rank() == 1 ? 1 : whole.dim(1);
    const nn::Slice& slice = param_.cut->slices[static_cast<std::size_t>(param_.cut->rank)];
    const bool whole_rows = slice.num_columns == columns;
    for (const nn::Slice::Rows& stretch : slice.rows) {
      const std::int64_t at_once = whole_rows ? stretch.count : 1;
      for (std::int64_t row = 0; row < stretch.count; row += at_once) {
        add((stretch.begin + row) * columns + slice.column_begin, at_once * slice.num_columns);
      }
    }
  }

 private:
  // Elements of the whole parameter, which come next in the part. Behind those that this rank
  // counts are some that other ranks count.
  void add(std::int64_t begin, std::int64_t count) {
    const Shape& shape = param_.spec.shape;
    const std::int64_t counted = nn::counted_rows(param_) * (shape.num_elements() / shape.dim(0));
    const std::int64_t own = std::clamp<std::int64_t>(counted - done_, 0, count);
    append(begin, own, counts_);
    append(begin + own, count - own, false);
  }
  void append(std::int64_t begin, std::int64_t count, bool counts) {
    if (count == 0) return;
    runs_.push_back({whole_ + begin, local_ + done_, count, counts});
    done_ += count;
  }

  const nn::Param& param_;
  std::int64_t local_, whole_;
  bool counts_;
  std::vector<FlatRun>& runs_;
  std::int64_t done_ = 0;
};

}  // namespace

std::vector<FlatRun> runs_in_whole(const FlatLayout& layout, const FlatLayout& whole,
                                   const CountsParam& counts) {
  std::unordered_map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < whole.trained().size(); ++i) place[whole.trained()[i]->name] = i;
  std::vector<FlatRun> runs;
  for (std::size_t i = 0; i < layout.trained().size(); ++i) {
    const nn::Param& param = *layout.trained()[i];
    const auto at = place.find(nn::whole_param(param).name);
    ATOLL_CHECK(at != place.end(), "the whole model has no {}", param.name);
    RunWriter(param, layout.offset(i), whole.offset(at->second), counts(param), runs).write();
  }
  return runs;
}

namespace {

// fn(run, begin, end) for what a range of this rank's flat vector has in common with its runs.
template <typename Fn>
void for_common(std::span<const FlatRun> runs, const ElementRange& range, Fn&& fn) {
  auto run = std::upper_bound(
      runs.begin(), runs.end(), range.begin,
      [](std::int64_t at, const FlatRun& run) { return at < run.local + run.count; });
  for (; run != runs.end() && run->local < range.end; ++run) {
    fn(*run, std::max(run->local, range.begin), std::min(run->local + run->count, range.end));
  }
}

}  // namespace

std::vector<HeldPiece> pieces_in_whole(std::span<const FlatRun> runs,
                                       std::span<const optim::StateTensor> pieces) {
  std::vector<HeldPiece> found;
  for (const optim::StateTensor& piece : pieces) {
    const ElementRange range = {piece.begin, piece.begin + piece.tensor.num_elements()};
    for_common(runs, range, [&](const FlatRun& run, auto begin, auto end) {
      found.push_back({run.begin + begin - run.local,
                       piece.tensor.rows(begin - piece.begin, end - piece.begin)});
    });
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const HeldPiece& a, const HeldPiece& b) { return a.begin < b.begin; });
  return found;
}

std::vector<ElementRange> ranges_in_whole(std::span<const FlatRun> runs,
                                          std::span<const ElementRange> ranges, bool only_counted) {
  std::vector<ElementRange> found;
  for (const ElementRange& range : ranges) {
    for_common(runs, range, [&](const FlatRun& run, auto begin, auto end) {
      if (only_counted && !run.counts) return;
      const std::int64_t shift = run.begin - run.local;
      found.push_back({begin + shift, end + shift});
    });
  }
  std::sort(found.begin(), found.end(),
            [](const ElementRange& a, const ElementRange& b) { return a.begin < b.begin; });
  std::vector<ElementRange> joined;
  for (const ElementRange& range : found) {
    if (!joined.empty() && joined.back().end == range.begin) {
      joined.back().end = range.end;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

std::vector<optim::ParamRange> drawn_by_whole(std::span<const FlatRun> runs,
                                              std::span<const optim::ParamRange> ranges) {
  std::vector<optim::ParamRange> all;
  for (const optim::ParamRange& range : ranges) {
    const std::int64_t end = range.begin + range.count;
    const std::size_t first = all.size();
    for_common(runs, {range.begin, end}, [&](const FlatRun& run, auto begin, auto) {
      if (all.size() > first) all.back().count = begin - all.back().begin;
      // Padding belongs to what is before it. It is zero and stays so, whatever it draws.
      const std::int64_t from = all.size() > first ? begin : range.begin;
      optim::ParamRange part = range;
      part.begin = from;
      part.count = end - from;
      part.draw_begin = run.begin + from - run.local;
      part.value_begin = range.in_values() + from - range.begin;
      part.grad_begin = range.in_grads() + from - range.begin;
      all.push_back(part);
    });
    if (all.size() == first) all.push_back(range);
    if (all.size() == first + 1) continue;
    for (std::size_t i = first; i < all.size(); ++i) all[i].matrix = false;
  }
  return all;
}

RangesByRank gather_ranges(comm::Group& group, std::span<const ElementRange> mine) {
  const int size = group.size();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(size));
  const auto me = static_cast<std::size_t>(group.rank());
  counts[me] = std::ssize(mine);
  group.all_gather({counts.data(), {Dtype::kI64, {size}}}, group.even_parts(size));
  std::vector<std::int64_t> parts = {0};
  for (const std::int64_t count : counts) parts.push_back(parts.back() + 2 * count);
  std::vector<std::int64_t> all(static_cast<std::size_t>(parts.back()));
  auto at = all.begin() + parts[me];
  for (const ElementRange& range : mine) {
    *at++ = range.begin;
    *at++ = range.end;
  }
  group.all_gather({all.data(), {Dtype::kI64, {parts.back()}}}, parts);
  RangesByRank ranges(counts.size());
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    for (auto i = parts[r]; i < parts[r + 1]; i += 2) {
      const auto place = static_cast<std::size_t>(i);
      ranges[r].push_back({all[place], all[place + 1]});
    }
  }
  return ranges;
}

}  // namespace atl::parallel
