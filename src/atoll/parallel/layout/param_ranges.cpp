#include "atoll/parallel/layout/param_ranges.h"

#include <algorithm>
#include <span>

namespace atl::parallel {

namespace {

bool is_hidden_matrix(const nn::Param& param) {
  return param.spec.shape.rank() == 2 && param.spec.shape.num_elements() > 0 &&
         !param.is_embedding && !param.is_position;
}

// Whether the file tensors are the rows from first to last, each once.
bool parts_tile(const nn::Param& param) {
  std::int64_t row = 0;
  for (const nn::FileTensor& part : param.files) {
    if (part.row_begin != row || part.rows < 1) return false;
    row += part.rows;
  }
  return row == param.spec.shape.dim(0);
}

// Of several ranks that have the same rows, the first counts them.
void set_counted(const nn::Param& param, std::int64_t begin, std::span<optim::ParamRange> ranges) {
  const Shape& shape = param.spec.shape;
  const std::int64_t rows = nn::counted_rows(param);
  if (rows == shape.dim(0)) return;
  const std::int64_t end = begin + rows * (shape.num_elements() / shape.dim(0));
  for (optim::ParamRange& range : ranges) {
    range.counted = std::clamp<std::int64_t>(end - range.begin, 0, range.count);
  }
}

// Queries have a learning rate of their own. A file tensor may hold them together with keys and
// values, as GPT-2's does, so that these are no matrices: no optimizer that reads matrices as a
// whole has such rates.
void append_queries(const nn::Param& param, optim::ParamRange all,
                    std::vector<optim::ParamRange>& ranges) {
  const Shape& shape = param.spec.shape;
  optim::ParamRange queries = all;
  queries.count = param.query_rows * (shape.num_elements() / shape.dim(0));
  queries.lr_scale *= param.query_scale;
  all.begin += queries.count;
  all.count -= queries.count;
  ranges.push_back(queries);
  if (all.count > 0) ranges.push_back(all);
}

void append(const nn::Param& param, std::int64_t begin, std::int64_t count,
            std::vector<optim::ParamRange>& ranges) {
  optim::ParamRange range = {
      .begin = begin, .count = count, .decay = param.decay, .lr_scale = param.lr_scale};
  if (param.query_rows > 0) return append_queries(param, range, ranges);
  if (!is_hidden_matrix(param)) {
    ranges.push_back(range);
    return;
  }
  ATOLL_CHECK(parts_tile(param), "{}: its file tensors are not its rows", param.name);
  range.matrix = true;
  range.cols = param.spec.shape.dim(1);
  for (const nn::FileTensor& part : param.files) {
    range.rows = part.rows;
    range.count = part.rows * range.cols;
    ranges.push_back(range);
    range.begin += range.count;
  }
  ranges.back().count += begin + count - range.begin;
}

}  // namespace

void append_ranges(const nn::Param& param, std::int64_t begin, std::int64_t count,
                   std::vector<optim::ParamRange>& ranges) {
  const std::size_t before = ranges.size();
  append(param, begin, count, ranges);
  set_counted(param, begin, std::span(ranges).subspan(before));
}

std::optional<optim::MatrixParts> matrix_parts(const nn::Param& param, std::size_t file) {
  if (!param.cut) return std::nullopt;
  const nn::Param& whole = param.cut->whole;
  const auto of_whole = std::find_if(
      whole.files.begin(), whole.files.end(),
      [&](const nn::FileTensor& tensor) { return tensor.name == param.files[file].name; });
  ATOLL_CHECK(of_whole != whole.files.end(), "{} has no {}", whole.name, param.files[file].name);
  optim::MatrixParts parts = {.rows = of_whole->rows, .cols = whole.spec.shape.dim(1)};
  const nn::Cut& cut = *param.cut;
  const auto neighbours = static_cast<std::size_t>(cut.neighbours);
  const std::size_t place = static_cast<std::size_t>(cut.rank) % neighbours;
  const std::size_t first = static_cast<std::size_t>(cut.rank) - place;
  for (const nn::Slice& slice : std::span(cut.slices).subspan(first, neighbours)) {
    optim::MatrixParts::Part part = {{}, slice.column_begin, slice.num_columns};
    for (const nn::Slice::Rows& stretch : slice.rows) {
      const std::int64_t begin = std::max(stretch.begin - of_whole->row_begin, std::int64_t{0});
      const std::int64_t end =
          std::min(stretch.begin + stretch.count - of_whole->row_begin, of_whole->rows);
      if (begin < end) part.rows.push_back({begin, end - begin});
    }
    parts.of_ranks.push_back(std::move(part));
  }
  const auto& mine = parts.of_ranks[place];
  if (mine.num_elements() == parts.rows * parts.cols) return std::nullopt;
  return parts;
}

}  // namespace atl::parallel
