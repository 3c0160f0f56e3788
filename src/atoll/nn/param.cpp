#include "atoll/nn/param.h"

#include <algorithm>
#include <cstring>

#include "atoll/base/check.h"
#include "atoll/tensor/host_access.h"

namespace atl::nn {

std::int64_t Slice::num_rows() const {
  std::int64_t sum = 0;
  for (const Rows& stretch : rows) sum += stretch.count;
  return sum;
}

int Cut::first_with_slice_of(int of) const {
  const auto mine = slices.begin() + of;
  return static_cast<int>(std::find(slices.begin(), mine, *mine) - slices.begin());
}

const Param& whole_param(const Param& param) {
  return param.cut ? param.cut->whole : param;
}

std::int64_t counted_rows(const Param& param) {
  std::int64_t rows = param.spec.shape.dim(0);
  for (const Sharing& sharing : param.shared_by) {
    if (sharing.axis->rank > 0) rows = std::min(rows, sharing.row);
  }
  return rows;
}

namespace {

// The rows that each file tensor has in the part, one file after the other; a file that has none is
// left out.
std::vector<FileTensor> files_of(const Param& whole, const Slice& slice) {
  std::vector<FileTensor> files;
  std::int64_t row = 0;  // of the part
  for (const FileTensor& file : whole.files) {
    FileTensor part = file;
    part.row_begin = row;
    part.rows = 0;
    for (const Slice::Rows& stretch : slice.rows) {
      const std::int64_t begin = std::max(stretch.begin, file.row_begin);
      const std::int64_t end = std::min(stretch.begin + stretch.count, file.row_begin + file.rows);
      part.rows += std::max<std::int64_t>(0, end - begin);
    }
    row += part.rows;
    if (part.rows > 0) files.push_back(std::move(part));
  }
  ATOLL_CHECK(row == slice.num_rows(), "{}: {} of {} rows are in files", whole.name, row,
              slice.num_rows());
  return files;
}

// How many rows of a slice lie before row `end` of the whole. They are the slice's first.
std::int64_t rows_before(const Slice& slice, std::int64_t end) {
  std::int64_t count = 0;
  for (const Slice::Rows& stretch : slice.rows) {
    count += std::clamp<std::int64_t>(end - stretch.begin, 0, stretch.count);
  }
  return count;
}

// Calls fn(byte of the whole, byte of the part, number of bytes) for each contiguous piece.
template <typename Fn>
void for_pieces(const Slice& slice, const Tensor& whole, const Tensor& part, Fn&& fn) {
  const std::int64_t columns = whole.shape().rank() == 1 ? 1 : whole.dim(1);
  ATOLL_CHECK(whole.dtype() == part.dtype() &&
                  part.num_elements() == slice.num_rows() * slice.num_columns &&
                  slice.column_begin + slice.num_columns <= columns,
              "{} cut to {}", whole.spec().to_string(), part.spec().to_string());
  const auto size = static_cast<std::int64_t>(dtype_size(whole.dtype()));
  const bool whole_rows = slice.num_columns == columns;
  std::int64_t row = 0;  // of the part
  for (const Slice::Rows& stretch : slice.rows) {
    ATOLL_CHECK(stretch.begin + stretch.count <= whole.dim(0), "rows {} to {} of {}", stretch.begin,
                stretch.begin + stretch.count, whole.spec().to_string());
    // Rows that are there in full lie together.
    const std::int64_t at_once = whole_rows ? stretch.count : 1;
    for (std::int64_t i = 0; i < stretch.count; i += at_once) {
      const std::int64_t from = (stretch.begin + i) * columns + slice.column_begin;
      fn(from * size, (row + i) * slice.num_columns * size, at_once * slice.num_columns * size);
    }
    row += stretch.count;
  }
}

}  // namespace

Param cut_param(Param whole, std::vector<Slice> slices, int rank, int neighbours) {
  const Slice& mine = slices[static_cast<std::size_t>(rank)];
  Param part = whole;
  part.files = files_of(whole, mine);
  const bool is_vector = whole.spec.shape.rank() == 1;
  part.spec.shape = is_vector ? Shape{mine.num_rows()} : Shape{mine.num_rows(), mine.num_columns};
  part.query_rows = rows_before(mine, whole.query_rows);
  if (neighbours == 0) neighbours = static_cast<int>(std::ssize(slices));
  part.cut =
      std::make_shared<const Cut>(Cut{std::move(whole), std::move(slices), rank, neighbours});
  return part;
}

void copy_slice(const Slice& slice, const Tensor& whole, const Tensor& part) {
  const HostRead read(whole);
  write_on_host<std::byte>(part, [&](std::span<std::byte> to) {
    const std::span<const std::byte> from = read.bytes();
    for_pieces(slice, whole, part, [&](auto at, auto at_part, auto count) {
      std::memcpy(to.data() + at_part, from.data() + at, static_cast<std::size_t>(count));
    });
  });
}

void copy_slice_back(const Slice& slice, const Tensor& part, const Tensor& whole) {
  const HostRead read(part);
  update_on_host<std::byte>(whole, [&](std::span<std::byte> to) {
    const std::span<const std::byte> from = read.bytes();
    for_pieces(slice, whole, part, [&](auto at, auto at_part, auto count) {
      std::memcpy(to.data() + at, from.data() + at_part, static_cast<std::size_t>(count));
    });
  });
}

}  // namespace atl::nn
