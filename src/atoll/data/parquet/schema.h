#pragma once

// The columns of a Parquet file as the values that rows hold: texts, numbers, structs, lists, maps.

#include <cstddef>
#include <string>
#include <vector>

#include "atoll/data/parquet/column_reader.h"
#include "atoll/data/parquet/metadata.h"

namespace atl::data {

/// A field of a row, or a part of one.
struct ParquetNode {
  enum class Kind { kValue, kStruct, kList, kMap };
  Kind kind = Kind::kValue;
  std::string name;
  int definition = 0;          ///< from this level on it is not null
  int element_definition = 0;  ///< of a list or map: from this level on it is not empty
  int element_repetition = 0;  ///< of a list or map: the level of what is not its first element
  std::size_t first_column = 0;
  std::size_t num_columns = 0;        ///< those of all its parts stand together
  std::vector<ParquetNode> children;  ///< fields; the element; key and value
};

/// The fields of rows, and all columns in the order of the file.
struct ParquetSchema {
  std::vector<ParquetNode> fields;
  std::vector<ParquetColumn> columns;
};

/// Makes the tree of a footer's elements. Lists are known in all forms that parquet-format names
/// (LogicalTypes.md, "Lists", with the rules for older writers). Throws std::runtime_error for a
/// schema that is damaged, nests more than 32 deep, or has a group without columns.
ParquetSchema make_parquet_schema(const std::vector<ParquetElement>& elements);

}  // namespace atl::data
