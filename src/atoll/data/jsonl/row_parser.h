#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "atoll/data/field_map.h"
#include "atoll/data/fields.h"
#include "atoll/data/jsonl/jsonl_line.h"

namespace atl::data {

/// Reads JSON objects as the rows that for_each_jsonl_line() describes.
class RowParser {
 public:
  /// Of the file `path`, for messages. `fields` must outlive this. Throws Error(kUser) for fields
  /// that are malformed.
  RowParser(std::string path, const Fields& fields);

  /// Fills `line` but for its number, unit and end, which are those of the row that is read. Throws
  /// as for_each_jsonl_line().
  void parse(std::string_view json, JsonlLine& line);
  /// Whether rows are looked at for that key; others need not be there.
  bool reads(std::string_view key) const;

 private:
  std::string path_;
  const Fields& fields_;
  FieldMap map_;
  simdjson::dom::parser parser_;
};

}  // namespace atl::data
