#pragma once

// The arrays of an Arrow record batch. Source: Apache Arrow, "Columnar format" and Message.fbs.

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "atoll/data/arrow/flatbuffer.h"
#include "atoll/data/arrow/schema.h"

namespace atl::data {

/// Values of a field. Buffers are as long as `length` needs; what they point to is checked where it
/// is read.
struct ArrowArray {
  const ArrowField* field = nullptr;
  std::int64_t length = 0;
  std::string_view validity;              ///< a bit a value; empty: none is null
  std::string_view values;                ///< fixed ones, bits, views, or places in a dictionary
  std::string_view offsets;               ///< of texts and lists
  std::string_view sizes;                 ///< of list views
  std::string_view bytes;                 ///< of texts
  std::vector<std::string_view> buffers;  ///< what views point into
  std::vector<ArrowArray> children;
};

/// A batch of rows, with what was decompressed for it.
struct ArrowBatch {
  std::vector<ArrowArray> arrays;  ///< one a field; empty of one that is not read
  std::int64_t length = 0;
  std::vector<std::unique_ptr<std::vector<char>>> owned;
};

/// Reads a record batch with those fields, whose buffers `body` holds and which must outlive it.
/// `is_read` says of each field whether it is. Throws std::runtime_error for damage.
ArrowBatch read_arrow_batch(const FlatTable& batch, std::string_view body,
                            const std::vector<const ArrowField*>& fields,
                            const std::vector<bool>& is_read);

}  // namespace atl::data
