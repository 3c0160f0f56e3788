#include "atoll/model_dir/adapter_arithmetic.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/tensor/host_access.h"

namespace atl::model_dir {

namespace {

double to_double(float value) {
  return static_cast<double>(value);
}
double to_double(Bf16 value) {
  return static_cast<double>(to_f32(value));
}
void store(double value, float& to) {
  to = static_cast<float>(value);
}
void store(double value, Bf16& to) {
  to = to_bf16(static_cast<float>(value));
}

// Calls change(span of the elements), in whichever of the two types they are.
template <typename Change>
void update(const Tensor& tensor, Change&& change) {
  if (tensor.dtype() == Dtype::kBf16) {
    update_on_host<Bf16>(tensor, change);
  } else {
    update_on_host<float>(tensor, change);
  }
}

// W + s L R of one row.
template <typename T>
void changed_row(const LowRankChange& change, std::int64_t row, std::span<const T> old,
                 std::span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
  for (std::int64_t j = 0; j < change.rank; ++j) {
    const double weight = to_double(change.left[static_cast<std::size_t>(row * change.rank + j)]);
    const float* direction = change.right.data() + static_cast<std::size_t>(j) * out.size();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * to_double(direction[i]);
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_double(old[i]) + change.scale * out[i];
}

// What each column is multiplied by.
template <typename T>
std::vector<double> column_factors(const LowRankChange& change, std::int64_t rows, std::size_t in,
                                   std::span<const T> all) {
  std::vector<double> factors(in, 1.0);
  if (change.column_lengths.empty()) return factors;
  std::vector<double> squares(in, 0.0);
  std::vector<double> row(in);
  for (std::int64_t r = 0; r < rows; ++r) {
    changed_row<T>(change, r, all.subspan(static_cast<std::size_t>(r) * in, in), row);
    for (std::size_t i = 0; i < in; ++i) squares[i] += row[i] * row[i];
  }
  for (std::size_t i = 0; i < in; ++i) {
    factors[i] = to_double(change.column_lengths[i]) / std::sqrt(squares[i]);
  }
  return factors;
}

double row_factor(const LowRankChange& change, std::int64_t row, std::span<const double> values) {
  if (change.row_lengths.empty()) return 1;
  double squares = 0;
  for (const double value : values) squares += value * value;
  return to_double(change.row_lengths[static_cast<std::size_t>(row)]) / std::sqrt(squares);
}

}  // namespace

void add_low_rank(const LowRankChange& change, const Tensor& rows) {
  const std::int64_t count = rows.dim(0);
  const auto in = static_cast<std::size_t>(rows.dim(1));
  ATOLL_CHECK(std::ssize(change.left) == count * change.rank &&
                  change.right.size() == static_cast<std::size_t>(change.rank) * in,
              "{} and {} elements of rank {} for {}", change.left.size(), change.right.size(),
              change.rank, rows.spec().to_string());
  update(rows, [&]<typename T>(std::span<T> all) {
    const std::vector<double> by_column = column_factors<T>(change, count, in, all);
    std::vector<double> row(in);
    for (std::int64_t r = 0; r < count; ++r) {
      const std::span<T> old = all.subspan(static_cast<std::size_t>(r) * in, in);
      changed_row<T>(change, r, old, row);
      const double factor = row_factor(change, r, row);
      for (std::size_t i = 0; i < in; ++i) store(row[i] * factor * by_column[i], old[i]);
    }
  });
}

void row_lengths(const Tensor& rows, const Tensor& lengths) {
  const auto in = static_cast<std::size_t>(rows.dim(1));
  ATOLL_CHECK(lengths.dtype() == rows.dtype() && lengths.num_elements() == rows.dim(0), "{} of {}",
              lengths.spec().to_string(), rows.spec().to_string());
  std::vector<double> squares(static_cast<std::size_t>(rows.dim(0)), 0.0);
  update(rows, [&]<typename T>(std::span<T> all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      squares[i / in] += to_double(all[i]) * to_double(all[i]);
    }
  });
  update(lengths, [&]<typename T>(std::span<T> all) {
    for (std::size_t i = 0; i < all.size(); ++i) store(std::sqrt(squares[i]), all[i]);
  });
}

void add_scaled(double scale, std::span<const float> more, const Tensor& values) {
  update(values, [&]<typename T>(std::span<T> all) {
    ATOLL_CHECK(all.size() == more.size(), "{} and {} elements", all.size(), more.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      store(to_double(all[i]) + scale * to_double(more[i]), all[i]);
    }
  });
}

void replace_rows(std::span<const std::int64_t> indices, std::span<const float> rows,
                  const Tensor& table) {
  const auto in = static_cast<std::size_t>(table.dim(1));
  ATOLL_CHECK(rows.size() == indices.size() * in, "{} elements for {} rows of {}", rows.size(),
              indices.size(), in);
  update(table, [&]<typename T>(std::span<T> all) {
    for (std::size_t n = 0; n < indices.size(); ++n) {
      for (std::size_t i = 0; i < in; ++i) {
        store(to_double(rows[n * in + i]), all[static_cast<std::size_t>(indices[n]) * in + i]);
      }
    }
  });
}

std::vector<float> mean_of_rows(const Tensor& table) {
  const auto in = static_cast<std::size_t>(table.dim(1));
  std::vector<double> sums(in, 0.0);
  update(table, [&]<typename T>(std::span<T> all) {
    for (std::size_t i = 0; i < all.size(); ++i) sums[i % in] += to_double(all[i]);
  });
  std::vector<float> mean;
  for (const double sum : sums) {
    mean.push_back(static_cast<float>(sum / static_cast<double>(table.dim(0))));
  }
  return mean;
}

std::vector<float> transposed(std::span<const float> values, std::int64_t rows,
                              std::int64_t columns) {
  std::vector<float> out(values.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      out[static_cast<std::size_t>(c * rows + r)] =
          values[static_cast<std::size_t>(r * columns + c)];
    }
  }
  return out;
}

}  // namespace atl::model_dir
