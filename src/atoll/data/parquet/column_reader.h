#pragma once

// A column of a Parquet file, value by value through pages and row groups.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/data/parquet/encodings.h"
#include "atoll/data/parquet/metadata.h"

namespace atl::data {

/// A column and where it stands: how many of the groups above it, and itself, may be absent or come
/// several times.
struct ParquetColumn {
  ParquetElement element;
  std::string name;  ///< with those of its groups: "messages.list.element.role"
  int max_definition = 0;
  int max_repetition = 0;
};

/// The entries of a column: a value, or the level at which it is absent. Memory is one page and a
/// dictionary. Throws Error(kUser), naming file, column and byte, for damage and for what is not
/// read.
class ParquetColumnReader {
 public:
  /// `file`, all of it, and `path` must outlive this.
  ParquetColumnReader(std::string_view file, const std::string& path, ParquetColumn column)
      : file_(file), path_(path), column_(std::move(column)) {}

  /// Goes to the pages of a row group. All entries of the one before must have been read.
  void begin(const ParquetChunk& chunk);
  /// Whether there is an entry, which the following are about.
  bool has_entry();
  int definition() {
    need_entry();
    return definition_;
  }
  int repetition() {
    need_entry();
    return repetition_;
  }
  /// Of an entry whose definition() is the column's greatest. Valid until the one after is asked
  /// for.
  const ParquetValue& value() const { return value_; }
  /// Moves on.
  void next() {
    need_entry();
    is_loaded_ = false;
  }
  const ParquetColumn& column() const { return column_; }

 private:
  [[noreturn]] void fail(const std::string& problem) const;
  void need_entry() {
    if (!is_loaded_ && !has_entry()) fail("it has fewer values than other columns");
  }
  void load_page();
  void load_data(const ParquetPage& page, std::string_view content);
  void load_dictionary(const ParquetPage& page, std::string_view content);
  void load_entry();
  std::string_view decompress(std::string_view block, std::size_t size, std::vector<char>& out);
  // Levels of a page of version 1, which their size stands before.
  static std::string_view take_levels(std::string_view& content);

  std::string_view file_;
  const std::string& path_;
  ParquetColumn column_;
  ParquetChunk chunk_;
  std::uint64_t at_ = 0;            // in the file: the next page
  std::uint64_t page_at_ = 0;       // the page that is read
  std::uint64_t end_ = 0;           // of the chunk
  std::int64_t left_in_chunk_ = 0;  // entries that are not in the pages so far
  std::int64_t left_in_page_ = 0;
  std::vector<char> page_;
  std::vector<char> dictionary_bytes_;
  std::vector<ParquetValue> dictionary_;
  bool has_dictionary_ = false;
  RleReader definitions_;
  RleReader repetitions_;
  std::unique_ptr<ValueReader> values_;
  bool is_loaded_ = false;
  int definition_ = 0;
  int repetition_ = 0;
  ParquetValue value_;
};

}  // namespace atl::data
