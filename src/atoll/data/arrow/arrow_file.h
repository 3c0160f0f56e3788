#pragma once

#include <filesystem>
#include <memory>

#include "atoll/data/rows/row_source.h"

namespace atl::data {

/// The rows of an Arrow IPC stream (the cache of Hugging Face's datasets) or file (Feather),
/// written as open_parquet() writes rows. Throws Error(kUser), naming the byte of the message, for
/// damage and for what is not read: intervals, unions, run-end encoding, big-endian files.
std::unique_ptr<RowSource> open_arrow(const std::filesystem::path& path, IsRead is_read);

}  // namespace atl::data
