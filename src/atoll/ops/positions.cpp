#include "atoll/ops/positions.h"

#include "atoll/base/error.h"
#include "atoll/device/device.h"

namespace atl::ops {

namespace {

void check_position_spec(const char* op, const Tensor& positions, std::int64_t num_rows,
                         std::int64_t rows_per_sequence) {
  ATOLL_CHECK(positions.dtype() == Dtype::kI32 && positions.shape().rank() >= 1 &&
                  positions.dim(-1) == rows_per_sequence && positions.num_elements() == num_rows,
              "{}: positions are {} for {} rows in sequences of {}", op,
              positions.spec().to_string(), num_rows, rows_per_sequence);
}

}  // namespace

bool is_readable(const Tensor& positions) {
  return positions.device() == nullptr || positions.device()->kind() == DeviceKind::kCpu;
}

void check_positions(const char* op, const Tensor& positions, std::int64_t num_rows,
                     std::int64_t rows_per_sequence, std::int64_t table_size) {
  if (!positions.defined()) {
    ATOLL_CHECK(rows_per_sequence <= table_size, "{}: position {} of a table of {}", op,
                rows_per_sequence - 1, table_size);
    return;
  }
  check_position_spec(op, positions, num_rows, rows_per_sequence);
  if (!is_readable(positions)) return;
  const std::int32_t* data = positions.data<std::int32_t>();
  for (std::int64_t row = 0; row < num_rows; ++row) {
    ATOLL_CHECK(data[row] >= 0 && data[row] < table_size, "{}: position {} of a table of {}", op,
                data[row], table_size);
  }
}

void check_documents(const char* op, const Tensor& positions, std::int64_t num_rows,
                     std::int64_t rows_per_sequence) {
  if (!positions.defined()) return;
  check_position_spec(op, positions, num_rows, rows_per_sequence);
  if (!is_readable(positions)) return;
  const std::int32_t* data = positions.data<std::int32_t>();
  std::int32_t most = 0;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t t = row % rows_per_sequence;
    if (t == 0) most = 0;
    if (data[row] < 0 || data[row] > most) {
      throw damaged_error(
          "the position at row {}, place {} of the micro-batch is {}; documents follow one "
          "another, "
          "so it must be from 0 to {}",
          row / rows_per_sequence, t, data[row], most);
    }
    most = data[row] + 1;
  }
}

}  // namespace atl::ops
