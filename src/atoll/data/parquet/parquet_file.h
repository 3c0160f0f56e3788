#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "atoll/data/rows/row_source.h"

namespace atl::data {

/// The rows of a Parquet file, row group after row group: structs are objects, in which a null is
/// no key; lists are arrays, maps objects. Dates and times are texts of ISO 8601, decimals numbers.
/// Read are all encodings of values, pages of version 1 and 2, and pages without compression or
/// with Snappy, gzip, zstd and LZ4. Checksums of pages are checked where there are any. In memory
/// is a page, and a dictionary, of each column that is read. Throws Error(kUser), naming file,
/// column and byte, for damage, encryption, Brotli, LZO and levels that are BIT_PACKED.
std::unique_ptr<RowSource> open_parquet(const std::filesystem::path& path, IsRead is_read);

/// What count_parquet_values() counted.
struct ParquetCount {
  std::int64_t entries = 0;  ///< values and nulls
  std::uint64_t bytes = 0;   ///< of texts
};

/// Decodes all columns that are read and makes no rows of them: to measure. Throws as
/// open_parquet().
ParquetCount count_parquet_values(const std::filesystem::path& path, const IsRead& is_read);

}  // namespace atl::data
