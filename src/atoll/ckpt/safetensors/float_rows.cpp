#include "atoll/ckpt/safetensors/float_rows.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/ckpt/safetensors/convert.h"

namespace atl::ckpt {

namespace {

Shape to_shape(const std::vector<std::int64_t>& dims) {
  switch (dims.size()) {
    case 1:
      return {dims[0]};
    case 2:
      return {dims[0], dims[1]};
    case 3:
      return {dims[0], dims[1], dims[2]};
    default:
      ATOLL_CHECK_EQ(dims.size(), std::size_t{4});
      return {dims[0], dims[1], dims[2], dims[3]};
  }
}

}  // namespace

std::int64_t FloatRows::num_rows() const {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

FloatRows reorder_rows(FloatRows rows, std::function<std::int64_t(std::int64_t)> from) {
  FloatRows result = rows;
  const bool is_vector = rows.shape.size() == 1;
  result.open = [rows = std::move(rows), from = std::move(from), is_vector]() -> RowReader {
    RowReader read = rows.open();
    if (!is_vector) {
      return [read, from](std::int64_t row, std::span<float> out) { read(from(row), out); };
    }
    return [read, from](std::int64_t row, std::span<float> out) {
      std::vector<float> whole(out.size());
      read(row, whole);
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = whole[static_cast<std::size_t>(from(static_cast<std::int64_t>(i)))];
      }
    };
  };
  return result;
}

FloatRows add_to_rows(FloatRows rows, float number) {
  rows.open = [open = std::move(rows.open), number]() -> RowReader {
    return [read = open(), number](std::int64_t row, std::span<float> out) {
      read(row, out);
      for (float& value : out) value += number;
    };
  };
  return rows;
}

FloatRows transpose_rows(FloatRows rows) {
  ATOLL_CHECK_EQ(rows.shape.size(), std::size_t{2});
  FloatRows result = rows;
  std::swap(result.shape[0], result.shape[1]);
  result.open = [rows = std::move(rows)]() -> RowReader {
    const auto height = static_cast<std::size_t>(rows.shape[0]);
    const auto width = static_cast<std::size_t>(rows.shape[1]);
    // Shared because std::function must be copyable; the copies all read the same matrix.
    const auto whole = std::make_shared<std::vector<float>>(height * width);
    const RowReader read = rows.open();
    std::vector<float> row(width);
    for (std::size_t r = 0; r < height; ++r) {
      read(static_cast<std::int64_t>(r), row);
      for (std::size_t c = 0; c < width; ++c) (*whole)[c * height + r] = row[c];
    }
    return [whole, height](std::int64_t column, std::span<float> out) {
      const auto begin = whole->begin() + column * static_cast<std::int64_t>(height);
      std::copy(begin, begin + static_cast<std::int64_t>(height), out.begin());
    };
  };
  return result;
}

FloatRows stack_matrices(std::vector<FloatRows> matrices) {
  ATOLL_CHECK(!matrices.empty() && matrices.front().shape.size() == 2);
  FloatRows result = matrices.front();
  const std::int64_t rows = result.shape[0];
  for (const FloatRows& matrix : matrices) {
    ATOLL_CHECK(matrix.shape == matrices.front().shape, "{}", matrix.name);
  }
  result.shape.insert(result.shape.begin(), static_cast<std::int64_t>(matrices.size()));
  result.open = [matrices = std::move(matrices), rows]() -> RowReader {
    std::vector<RowReader> readers;
    for (const FloatRows& matrix : matrices) readers.push_back(matrix.open());
    return [readers = std::move(readers), rows](std::int64_t row, std::span<float> out) {
      readers[static_cast<std::size_t>(row / rows)](row % rows, out);
    };
  };
  return result;
}

FloatRows matrix_of_stack(FloatRows stack, std::int64_t index) {
  ATOLL_CHECK(stack.shape.size() == 3 && index < stack.shape[0], "{}", stack.name);
  stack.shape.erase(stack.shape.begin());
  stack.open = [open = std::move(stack.open), first = index * stack.shape[0]]() -> RowReader {
    return
        [read = open(), first](std::int64_t row, std::span<float> out) { read(first + row, out); };
  };
  return stack;
}

FloatRows rows_between(FloatRows rows, std::int64_t begin, std::int64_t count) {
  ATOLL_CHECK(rows.shape.size() == 2 && begin >= 0 && begin + count <= rows.shape[0], "{}",
              rows.name);
  rows.shape[0] = count;
  rows.open = [open = std::move(rows.open), begin]() -> RowReader {
    return
        [read = open(), begin](std::int64_t row, std::span<float> out) { read(begin + row, out); };
  };
  return rows;
}

FloatRows join_rows(std::vector<FloatRows> matrices) {
  ATOLL_CHECK(!matrices.empty());
  FloatRows result = matrices.front();
  std::vector<std::int64_t> begins;
  std::int64_t count = 0;
  for (const FloatRows& matrix : matrices) {
    ATOLL_CHECK(matrix.shape.size() == 2 && matrix.width() == result.width(), "{}", matrix.name);
    begins.push_back(count);
    count += matrix.shape[0];
  }
  result.shape[0] = count;
  result.open = [matrices = std::move(matrices), begins = std::move(begins)]() -> RowReader {
    std::vector<RowReader> readers;
    for (const FloatRows& matrix : matrices) readers.push_back(matrix.open());
    return [readers = std::move(readers), begins](std::int64_t row, std::span<float> out) {
      const auto behind = std::upper_bound(begins.begin(), begins.end(), row);
      const auto which = static_cast<std::size_t>(behind - begins.begin()) - 1;
      readers[which](row - begins[which], out);
    };
  };
  return result;
}

TensorSource to_source(FloatRows rows, Dtype dtype) {
  const Spec spec = {dtype, to_shape(rows.shape)};
  std::string name = rows.name;
  return {name, spec, [rows = std::move(rows), dtype](const ByteSink& sink) {
            const RowReader read = rows.open();
            std::vector<float> row(static_cast<std::size_t>(rows.width()));
            std::vector<std::byte> bytes(row.size() * dtype_size(dtype));
            for (std::int64_t r = 0; r < rows.num_rows(); ++r) {
              read(r, row);
              check_fits(row, dtype, rows.name);
              convert_from_f32(row, dtype, bytes);
              sink(bytes.data(), bytes.size());
            }
          }};
}

}  // namespace atl::ckpt
