#include "atoll/ops/documents.h"

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::ops {

std::int64_t check_documents(const char* op, const Tensor& document_start, std::int64_t num_rows,
                             std::int64_t rows_per_sequence) {
  if (!document_start.defined()) return rows_per_sequence - 1;
  ATOLL_CHECK(document_start.dtype() == Dtype::kI32 && document_start.shape().rank() >= 1 &&
                  document_start.dim(-1) == rows_per_sequence &&
                  document_start.num_elements() == num_rows,
              "{}: document_start is {} for {} rows in sequences of {}", op,
              document_start.spec().to_string(), num_rows, rows_per_sequence);
  const std::int32_t* starts = document_start.data<std::int32_t>();
  std::int64_t largest = 0;
  std::int64_t before = 0;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t t = row % rows_per_sequence;
    if (t == 0) before = 0;
    if (starts[row] < before || starts[row] > t) {
      throw damaged_error(
          "document_start is {} at row {}, position {} of the micro-batch; documents follow one "
          "another, so it must be from {} to {}",
          starts[row], row / rows_per_sequence, t, before, t);
    }
    before = starts[row];
    largest = std::max(largest, t - before);
  }
  return largest;
}

}  // namespace atl::ops
