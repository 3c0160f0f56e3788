#pragma once

#include "atoll/tensor/tensor.h"

namespace atl::ops {

/// Checks where the documents of packed rows begin and returns the largest position within a
/// document, t - document_start[b, t]; rows_per_sequence - 1 when document_start is undefined.
///
/// document_start: i32 (B, T) with B * T = num_rows and T = rows_per_sequence, or undefined.
/// Throws Error(kDamaged) naming the first element that is below 0, above its own t, or below the
/// one before it; Error(kInternal), naming `op`, for another spec.
std::int64_t check_documents(const char* op, const Tensor& document_start, std::int64_t num_rows,
                             std::int64_t rows_per_sequence);

/// t - document_start[row], the position of row b * T + t within its document, where `starts` is
/// document_start's data or null: one document.
inline std::int64_t position_in_document(const std::int32_t* starts, std::int64_t row,
                                         std::int64_t rows_per_sequence) {
  const std::int64_t t = row % rows_per_sequence;
  return starts == nullptr ? t : t - starts[row];
}

/// The data of document_start, or null when it is undefined.
inline const std::int32_t* document_starts(const Tensor& document_start) {
  return document_start.defined() ? document_start.data<std::int32_t>() : nullptr;
}

}  // namespace atl::ops
