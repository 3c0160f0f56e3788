#include "atoll/data/rows/row_files.h"

#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/data/arrow/arrow_file.h"
#include "atoll/data/bytes/text_window.h"
#include "atoll/data/jsonl/row_parser.h"
#include "atoll/data/parquet/parquet_file.h"
#include "atoll/data/rows/csv.h"
#include "atoll/data/rows/json_array.h"
#include "atoll/data/rows/tar.h"

namespace atl::data {

std::unique_ptr<RowSource> open_rows(const std::filesystem::path& path, InputFormat format,
                                     IsRead is_read) {
  TextWindow window(path);
  const bool is_table = format == InputFormat::kParquet || format == InputFormat::kArrow;
  if (is_table && window.compression() != Compression::kNone) {
    throw user_error("{} is {} within {}, and such a table is not read from front to back; {}",
                     path.string(), format == InputFormat::kParquet ? "Parquet" : "Arrow",
                     compression_name(window.compression()), "decompress it first");
  }
  if (!is_table) {
    constexpr std::size_t kLookedAt = 4096;
    window.fill(kLookedAt);
    if (format != InputFormat::kTar) refuse_utf16(path, window.view());
  }
  switch (format) {
    case InputFormat::kJsonl:
      return open_json_lines(std::move(window));
    case InputFormat::kJsonArray:
      return open_json_array(std::move(window));
    case InputFormat::kCsv:
      return open_csv(std::move(window), std::move(is_read));
    case InputFormat::kTar:
      return open_tar(std::move(window));
    case InputFormat::kParquet:
      return open_parquet(path, std::move(is_read));
    case InputFormat::kArrow:
      return open_arrow(path, std::move(is_read));
    case InputFormat::kText:
    case InputFormat::kBin:
      break;
  }
  ATOLL_CHECK(false, "{} has no rows", format_name(format));
  return nullptr;
}

std::uint64_t for_each_row(const std::filesystem::path& path, InputFormat format,
                           const Fields& fields, const std::function<void(const JsonlLine&)>& fn) {
  RowParser parser(path.string(), fields);
  const auto rows =
      open_rows(path, format, [&parser](std::string_view key) { return parser.reads(key); });
  JsonlLine line;
  line.unit = rows->unit();
  while (const auto row = rows->next()) {
    line.number = row->number;
    line.end = row->bytes_done;
    parser.parse(row->json, line);
    fn(line);
  }
  return rows->content_bytes();
}

}  // namespace atl::data
