#pragma once

// The fields of an Arrow schema. Source: Apache Arrow, format/Schema.fbs.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/data/arrow/flatbuffer.h"

namespace atl::data {

/// Types, as the schema numbers them.
enum class ArrowType : std::uint8_t {
  kNull = 1,
  kInt,
  kFloat,
  kBinary,
  kUtf8,
  kBool,
  kDecimal,
  kDate,
  kTime,
  kTimestamp,
  kInterval,
  kList,
  kStruct,
  kUnion,
  kFixedBinary,
  kFixedList,
  kMap,
  kDuration,
  kLargeBinary,
  kLargeUtf8,
  kLargeList,
  kRunEndEncoded,
  kBinaryView,
  kUtf8View,
  kListView,
  kLargeListView,
};

/// A field, or the element of one.
struct ArrowField {
  std::string name;
  ArrowType type = ArrowType::kNull;
  int width = 0;          ///< bytes of a value, or elements of a list, where all have as many
  bool is_signed = true;  ///< of integers
  int scale = 0;          ///< of decimals
  int unit = 0;           ///< of times: 0 second, 1 milli, 2 micro, 3 nano; of dates: 0 day
  bool is_utc = false;    ///< of timestamps
  std::optional<std::int64_t> dictionary;  ///< values are places in it; of what, the rest says
  int index_width = 0;                     ///< bytes of such a place
  bool is_index_signed = true;
  std::vector<ArrowField> children;
};

/// Reads the fields of a schema. Throws std::runtime_error for damage, and naming a type that is
/// not read.
std::vector<ArrowField> read_arrow_schema(const FlatTable& schema);

}  // namespace atl::data
