#include "atoll/parallel/layout/flat_layout.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "atoll/optim/matrix_parts.h"
#include "atoll/parallel/layout/param_ranges.h"
#include "atoll/tensor/arena.h"

namespace atl::parallel {

namespace {

// A collective costs the same for nothing as for this much: smaller stages join the one before.
constexpr std::int64_t kSmallStageElements = 1 << 14;

class Collector final : public nn::ParamVisitor {
 public:
  void param(nn::Param& param) override { add(params, &param); }
  void constant(nn::Constant& constant) override { add(constants, &constant); }

  std::vector<nn::Param*> params;
  std::vector<nn::Constant*> constants;

 private:
  template <typename T>
  void add(std::vector<T*>& to, T* item) {
    if (seen_.insert(item).second) to.push_back(item);
  }
  std::unordered_set<const void*> seen_;
};

// A parameter's elements, and those up to the next cache line. Packed ones lie apart.
std::int64_t padded_elements(const nn::Param& param) {
  if (param.is_packed()) return 0;
  return static_cast<std::int64_t>(align_up(param.spec.bytes()) / dtype_size(param.spec.dtype));
}

// The size by which stages are put together: the same on all ranks that have parts of a parameter,
// which must reduce what they share at the same stages.
std::int64_t even_elements(const nn::Param& param) {
  if (!param.cut) return padded_elements(param);
  std::int64_t parts = 0;  // that differ
  for (int r = 0; r < static_cast<int>(std::ssize(param.cut->slices)); ++r) {
    if (param.cut->first_with_slice_of(r) == r) ++parts;
  }
  return (param.cut->whole.spec.shape.num_elements() + parts - 1) / parts;
}

// The part of `range` within [begin, end).
optim::ParamRange within(const optim::ParamRange& range, std::int64_t begin, std::int64_t end) {
  optim::ParamRange part = range;
  part.begin = std::max(range.begin, begin);
  part.count = std::min(range.begin + range.count, end) - part.begin;
  if (range.counted >= 0) {
    part.counted =
        std::clamp<std::int64_t>(range.begin + range.counted - part.begin, 0, part.count);
  }
  if (part.begin != range.begin || part.count < range.rows * range.cols) part.matrix = false;
  return part;
}

}  // namespace

FlatLayout::FlatLayout(const nn::Model& model, const LayoutOptions& options) : options_(options) {
  ATOLL_CHECK(options.num_ranks >= 1, "{} ranks", options.num_ranks);
  place_params(model);
  make_buckets(model);
}

void FlatLayout::place_params(const nn::Model& model) {
  Collector collector;
  model.visit(collector);
  params_ = std::move(collector.params);
  constants_ = std::move(collector.constants);
  const auto first_frozen = std::stable_partition(
      params_.begin(), params_.end(), [](const nn::Param* param) { return !param->frozen; });
  num_trained_ = static_cast<std::size_t>(first_frozen - params_.begin());
  const auto place = [&](std::span<nn::Param* const> params) {
    std::int64_t end = 0;
    for (const nn::Param* param : params) {
      offsets_.push_back(end);
      end += padded_elements(*param);
    }
    return Spec{model.options.dtype, {end}};
  };
  flat_ = place(trained());
  frozen_flat_ = place(frozen());
  for (std::size_t i = 0; i < num_trained_; ++i) {
    const std::size_t first = ranges_.size();
    append_ranges(*params_[i], offsets_[i], padded_elements(*params_[i]), ranges_);
    note_parts(i, first);
  }
}

// Of the ranges from `first_range` on, which are those of a parameter.
void FlatLayout::note_parts(std::size_t param, std::size_t first_range) {
  const nn::Param& of = *params_[param];
  for (std::size_t i = first_range; i < ranges_.size(); ++i) {
    optim::ParamRange& range = ranges_[i];
    first_counts_.push_back(range.count);
    if (!of.cut) continue;
    if (!range.matrix) {
      const nn::Cut& cut = *of.cut;
      const nn::Slice& first =
          cut.slices[static_cast<std::size_t>(cut.rank - cut.rank % cut.neighbours)];
      first_counts_.back() = first.num_rows() * first.num_columns;
    } else if (auto parts = matrix_parts(of, i - first_range)) {
      first_counts_.back() = parts->of_ranks.front().num_elements();
      matrix_parts_.push_back(std::make_shared<const optim::MatrixParts>(*std::move(parts)));
      range.parts = matrix_parts_.back().get();
    }
  }
}

void FlatLayout::make_buckets(const nn::Model& model) {
  // First one a stage: the parameters that it is the first to use.
  std::unordered_map<const nn::Param*, std::size_t> numbers;  // of those that are trained
  for (std::size_t i = 0; i < num_trained_; ++i) numbers.emplace(params_[i], i);
  std::vector<std::set<std::size_t>> users(num_trained_);
  for (std::size_t stage = 0; stage < model.stages.size(); ++stage) {
    Collector collector;
    model.stages[stage]->visit(collector);
    for (const nn::Param* param : collector.params) {
      const auto at = numbers.find(param);
      if (at != numbers.end()) users[at->second].insert(stage);
    }
  }
  struct Unit {
    std::size_t first_param, end_param;
    std::set<std::size_t> stages;
    bool shared;  // stages far apart use it: it must not keep others' gradients waiting
    std::int64_t size;
    std::int64_t even_size;
  };
  std::vector<Unit> units;
  for (std::size_t i = 0; i < num_trained_; ++i) {
    const std::int64_t size = padded_elements(*params_[i]);
    const std::size_t stage = *users[i].begin();
    const bool same_stage = !units.empty() && *users[units.back().first_param].begin() == stage;
    if (!same_stage) units.push_back({i, i, {}, false, 0, 0});
    Unit& unit = units.back();
    unit.end_param = i + 1;
    unit.stages.insert(users[i].begin(), users[i].end());
    unit.shared |= users[i].size() > 1;
    unit.size += size;
    unit.even_size += even_elements(*params_[i]);
  }
  // Then together, as backward goes: from the last to the first.
  std::vector<Unit> joined;
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    Unit* last = joined.empty() ? nullptr : &joined.back();
    const std::int64_t bytes =
        last == nullptr
            ? 0
            : last->even_size * static_cast<std::int64_t>(dtype_size(compute_dtype(flat_.dtype)));
    const bool wanted =
        last != nullptr && (last->even_size < kSmallStageElements || bytes < options_.bucket_bytes);
    if (!wanted || unit->shared || last->shared) {
      joined.push_back(*unit);
      continue;
    }
    last->first_param = unit->first_param;
    last->stages.insert(unit->stages.begin(), unit->stages.end());
    last->size += unit->size;
    last->even_size += unit->even_size;
  }
  for (auto unit = joined.rbegin(); unit != joined.rend(); ++unit) {
    Bucket bucket;
    bucket.first_param = unit->first_param;
    bucket.end_param = unit->end_param;
    bucket.begin = offsets_[unit->first_param];
    bucket.end = bucket.begin + unit->size;
    bucket.stages.assign(unit->stages.begin(), unit->stages.end());
    bucket.parts = cut(bucket.begin, bucket.end);
    buckets_.push_back(std::move(bucket));
  }
}

// The cut points nearest to equal parts, as offsets from `begin`. Ranks whose parts of the model
// differ in size must agree who has which matrix: where ranges have parts, sizes are the first
// rank's.
std::vector<std::int64_t> FlatLayout::cut(std::int64_t begin, std::int64_t end) const {
  struct Point {
    std::int64_t at, on_first;
  };
  const bool agrees = options_.whole_matrices && !matrix_parts_.empty();
  std::vector<Point> points;
  std::int64_t before = 0;
  const auto first = std::partition_point(  // they are in the order of their elements
      ranges_.begin(), ranges_.end(), [&](const auto& range) { return range.begin < begin; });
  for (auto i = static_cast<std::size_t>(first - ranges_.begin()); i < ranges_.size(); ++i) {
    const optim::ParamRange& range = ranges_[i];
    if (range.begin >= end) break;
    const std::int64_t count = agrees ? first_counts_[i] : range.count;
    const bool whole = options_.whole_matrices && range.matrix;
    const std::int64_t step = whole ? std::max(count, range.count) : kBlockElements;
    for (std::int64_t at = 0; at < count; at += step) {
      points.push_back({range.begin + std::min(at, range.count) - begin, before + at});
    }
    before += count;
  }
  points.push_back({end - begin, before});
  std::vector<std::int64_t> parts = {0};
  for (int r = 1; r < options_.num_ranks; ++r) {
    const std::int64_t wanted = before * r / options_.num_ranks;
    auto above = std::lower_bound(
        points.begin(), points.end(), wanted,
        [](const Point& point, std::int64_t wanted) { return point.on_first < wanted; });
    if (above != points.begin() && above->on_first - wanted > wanted - (above - 1)->on_first) {
      --above;
    }
    parts.push_back(std::max(above->at, parts.back()));
  }
  parts.push_back(end - begin);
  return parts;
}

std::int64_t FlatLayout::share(int r) const {
  std::int64_t sum = 0;
  for (const Bucket& bucket : buckets_) sum += bucket.part_size(r);
  return sum;
}

std::vector<optim::ParamRange> FlatLayout::ranges_of(int r) const {
  std::vector<optim::ParamRange> mine;
  std::int64_t before = 0;  // elements of this rank in earlier buckets
  auto range = ranges_.begin();
  for (const Bucket& bucket : buckets_) {
    const std::int64_t begin = bucket.begin + bucket.parts[static_cast<std::size_t>(r)];
    const std::int64_t end = begin + bucket.part_size(r);
    while (range != ranges_.end() && range->begin + range->count <= begin) ++range;
    for (auto at = range; at != ranges_.end() && at->begin < end; ++at) {
      optim::ParamRange part = within(*at, begin, end);
      part.value_begin = part.grad_begin = before + part.begin - begin;
      mine.push_back(part);
    }
    before += end - begin;
  }
  return mine;
}

std::vector<NormBlock> norm_blocks(std::span<const optim::ParamRange> ranges) {
  std::vector<NormBlock> blocks;
  for (const optim::ParamRange& range : ranges) {
    const std::int64_t count = range.counted < 0 ? range.count : range.counted;
    for (std::int64_t at = 0; at < count; at += kBlockElements) {
      blocks.push_back({range.in_grads() + at, std::min(kBlockElements, count - at)});
    }
  }
  return blocks;
}

}  // namespace atl::parallel
