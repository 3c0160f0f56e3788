#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include "atoll/data/fields.h"
#include "atoll/data/input_format.h"
#include "atoll/data/jsonl/jsonl_line.h"
#include "atoll/data/rows/row_source.h"

namespace atl::data {

/// The rows of a file of that format, which is one of rows (has_rows). Columns that are not read
/// need not be decoded, and stand as "" in the rows. Throws as RowSource does, and Error(kUser) for
/// a table that is compressed as a whole.
std::unique_ptr<RowSource> open_rows(const std::filesystem::path& path, InputFormat format,
                                     IsRead is_read);

/// Calls fn for each row of such a file, in its order, read as for_each_jsonl_line() reads lines,
/// and returns the bytes of the file's content, which JsonlLine::end counts too. Throws as that and
/// open_rows() do.
std::uint64_t for_each_row(const std::filesystem::path& path, InputFormat format,
                           const Fields& fields, const std::function<void(const JsonlLine&)>& fn);

}  // namespace atl::data
