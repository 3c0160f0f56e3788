#pragma once

#include <string>

#include "atoll/data/parquet/encodings.h"
#include "atoll/data/parquet/metadata.h"

namespace atl::data {

/// Appends a value of a column as JSON. Throws std::runtime_error for a type that has none: an
/// interval, a decimal or a time of a physical type that the format does not know.
void append_parquet_value(std::string& out, const ParquetElement& column,
                          const ParquetValue& value);

}  // namespace atl::data
