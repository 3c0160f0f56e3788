#pragma once

// The footer of a Parquet file and the headers of its pages. Source: parquet-format,
// parquet.thrift.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::data {

/// Physical types, as the file numbers them.
enum class ParquetType { kBoolean, kInt32, kInt64, kInt96, kFloat, kDouble, kByteArray, kFixed };

/// What the values of a physical type mean.
enum class ParquetMeaning {
  kPlain,  ///< the number, or the text, itself
  kUnsigned,
  kDecimal,
  kDate,
  kTime,
  kTimestamp,
  kHalf,
  kUuid,
  kInterval,
  kList,
  kMap,
};

/// An element of the schema: a column or a group of `num_children` elements that follow.
struct ParquetElement {
  std::string name;
  ParquetType type = ParquetType::kByteArray;
  ParquetMeaning meaning = ParquetMeaning::kPlain;
  std::int32_t repetition = 0;  ///< 0 required, 1 optional, 2 repeated
  std::int32_t num_children = 0;
  std::int32_t type_length = 0;  ///< bytes of kFixed
  std::int32_t scale = 0;        ///< of decimals
  int unit = 0;                  ///< of times: 0 milli, 1 micro, 2 nano
  bool is_utc = false;           ///< of times
};

/// The pages of a column in a row group.
struct ParquetChunk {
  std::int32_t codec = 0;
  std::int64_t num_values = 0;
  std::int64_t offset = 0;  ///< of its first page
  std::int64_t bytes = 0;
  bool is_elsewhere = false;  ///< in another file
  bool is_encrypted = false;
};

/// Rows that stand together.
struct ParquetRowGroup {
  std::vector<ParquetChunk> chunks;  ///< one a column
  std::int64_t num_rows = 0;
};

/// What the footer says.
struct ParquetFooter {
  std::vector<ParquetElement> schema;  ///< the first is the root
  std::vector<ParquetRowGroup> row_groups;
  std::int64_t num_rows = 0;
};

/// What stands before a page.
struct ParquetPage {
  std::int32_t kind = 0;  ///< 0 data, 1 index, 2 dictionary, 3 data of version 2
  std::int32_t bytes = 0;
  std::int32_t compressed_bytes = 0;
  std::optional<std::int32_t> crc;
  std::int32_t num_values = 0;
  std::int32_t encoding = 0;
  std::int32_t definition_encoding = 3;  ///< of levels; 3: RLE
  std::int32_t repetition_encoding = 3;
  std::int32_t definition_bytes = 0;  ///< of version 2
  std::int32_t repetition_bytes = 0;  ///< of version 2
  bool is_compressed = true;          ///< of version 2
  std::size_t header_bytes = 0;
};

/// Reads a footer. Throws std::runtime_error saying what is wrong with it.
ParquetFooter read_parquet_footer(std::string_view bytes);

/// Reads the header that `bytes` begin with. Throws std::runtime_error as above.
ParquetPage read_parquet_page(std::string_view bytes);

}  // namespace atl::data
