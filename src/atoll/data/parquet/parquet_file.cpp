#include "atoll/data/parquet/parquet_file.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/data/bytes/text_window.h"
#include "atoll/data/columns/json_writer.h"
#include "atoll/data/parquet/column_reader.h"
#include "atoll/data/parquet/metadata.h"
#include "atoll/data/parquet/schema.h"
#include "atoll/data/parquet/value_json.h"

namespace atl::data {

namespace {

namespace fs = std::filesystem;

class Parquet final : public RowSource {
 public:
  Parquet(const fs::path& path, const IsRead& is_read) : path_(path.string()), file_(path) {
    try {
      footer_ = read_parquet_footer(footer_bytes());
      schema_ = make_parquet_schema(footer_.schema);
    } catch (const std::runtime_error& error) {
      if (dynamic_cast<const Error*>(&error) != nullptr) throw;
      throw user_error("{} cannot be read as Parquet: {}; write or copy the file again", path_,
                       error.what());
    }
    const auto has_name = [&](const ParquetNode& field) { return is_read(field.name); };
    // Without one that is read the reader of the rows tells of all.
    const bool has_read = std::any_of(schema_.fields.begin(), schema_.fields.end(), has_name);
    for (const ParquetNode& field : schema_.fields) {
      is_read_.push_back(!has_read || has_name(field));
    }
    for (const ParquetColumn& column : schema_.columns) {
      columns_.emplace_back(content(), path_, column);
    }
  }

  std::optional<RowText> next() override {
    while (row_in_group_ >= rows_in_group_) {
      if (!begin_group()) return std::nullopt;
    }
    ++row_in_group_;
    ++number_;
    row_.assign(1, '{');
    for (std::size_t i = 0; i < schema_.fields.size(); ++i) {
      const ParquetNode& field = schema_.fields[i];
      if (i > 0) row_ += ',';
      append_json_string(row_, field.name);
      row_ += ':';
      if (!is_read_[i]) {
        row_ += "\"\"";
        continue;
      }
      write(field);
      const bool goes_on = columns_[field.first_column].has_entry();
      if (goes_on && columns_[field.first_column].repetition() != 0) {
        fail(field, "its lists do not end with the row");
      }
    }
    row_ += '}';
    return RowText{row_, number_, bytes_done()};
  }

  std::uint64_t content_bytes() const override { return content().size(); }

  ParquetCount count() {
    ParquetCount result;
    while (begin_group()) {
      for (std::size_t i = 0; i < schema_.fields.size(); ++i) {
        if (!is_read_[i]) continue;
        const ParquetNode& field = schema_.fields[i];
        for (std::size_t c = field.first_column; c < field.first_column + field.num_columns; ++c) {
          ParquetColumnReader& column = columns_[c];
          for (; column.has_entry(); column.next(), ++result.entries) {
            const bool has_value = column.definition() == column.column().max_definition;
            if (has_value) result.bytes += column.value().text.size();
          }
        }
      }
    }
    return result;
  }

 private:
  std::string_view content() const {
    return {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()};
  }

  std::string_view footer_bytes() const {
    constexpr std::string_view kMagic = "PAR1";
    constexpr std::size_t kEnds = 12;  // the magic twice, and the footer's size
    const std::string_view all = content();
    if (!all.starts_with(kMagic)) throw std::runtime_error("it does not begin with PAR1");
    if (all.ends_with("PARE")) throw std::runtime_error("its footer is encrypted");
    if (all.size() < kEnds || !all.ends_with(kMagic)) {
      throw std::runtime_error("it does not end with PAR1, so it was cut off");
    }
    std::uint32_t size = 0;
    std::memcpy(&size, all.data() + all.size() - 8, sizeof(size));
    if (size > all.size() - kEnds) throw std::runtime_error("its footer is longer than the file");
    return all.substr(all.size() - 8 - size, size);
  }

  std::uint64_t bytes_done() const {
    const double share =
        static_cast<double>(number_) / static_cast<double>(std::max<std::int64_t>(rows_so_far_, 1));
    const double groups = static_cast<double>(next_group_) /
                          static_cast<double>(std::max<std::size_t>(footer_.row_groups.size(), 1));
    return std::min<std::uint64_t>(
        static_cast<std::uint64_t>(share * groups * static_cast<double>(content().size())),
        content().size());
  }

  [[noreturn]] void fail(const ParquetNode& node, std::string_view problem) const {
    throw user_error("{} row {}, column {}: {}; write or copy the file again", path_, number_,
                     node.name, problem);
  }

  bool begin_group() {
    if (next_group_ >= footer_.row_groups.size()) {
      end_group();
      return false;
    }
    const ParquetRowGroup& group = footer_.row_groups[next_group_++];
    if (group.chunks.size() != columns_.size() || group.num_rows < 0) {
      throw user_error("{}: row group {} has {} columns, and the schema has {}; {}", path_,
                       next_group_, group.chunks.size(), columns_.size(),
                       "write or copy the file again");
    }
    for (std::size_t i = 0; i < schema_.fields.size(); ++i) {
      if (!is_read_[i]) continue;
      const ParquetNode& field = schema_.fields[i];
      for (std::size_t c = field.first_column; c < field.first_column + field.num_columns; ++c) {
        columns_[c].begin(group.chunks[c]);
      }
    }
    rows_in_group_ = group.num_rows;
    rows_so_far_ += group.num_rows;
    row_in_group_ = 0;
    return true;
  }

  // Behind the last row no column has anything left.
  void end_group() {
    for (ParquetColumnReader& column : columns_) column.begin({});
  }

  // Moves all columns of a node past the one entry that says that it is absent or empty.
  void pass(const ParquetNode& node) {
    for (std::size_t i = 0; i < node.num_columns; ++i) columns_[node.first_column + i].next();
  }

  void write(const ParquetNode& node) {
    if (row_.size() > kMaxRowBytes) fail(node, "the row has more than 256 MiB");
    ParquetColumnReader& first = columns_[node.first_column];
    const int definition = first.definition();
    if (definition < node.definition) {
      row_ += "null";
      return pass(node);
    }
    switch (node.kind) {
      case ParquetNode::Kind::kValue:
        write_value(node, first);
        return;
      case ParquetNode::Kind::kStruct:
        return write_struct(node);
      case ParquetNode::Kind::kList:
        row_ += '[';
        write_elements(node, first, [&] { write(node.children.front()); });
        row_ += ']';
        return;
      case ParquetNode::Kind::kMap:
        row_ += '{';
        write_elements(node, first, [&] { write_entry(node); });
        row_ += '}';
        return;
    }
  }

  void write_value(const ParquetNode& node, ParquetColumnReader& column) {
    try {
      append_parquet_value(row_, column.column().element, column.value());
    } catch (const std::runtime_error& error) {
      fail(node, error.what());
    }
    column.next();
  }

  void write_struct(const ParquetNode& node) {
    row_ += '{';
    bool is_first = true;
    for (const ParquetNode& child : node.children) {
      if (columns_[child.first_column].definition() < child.definition) {
        pass(child);
        continue;
      }
      if (!is_first) row_ += ',';
      is_first = false;
      append_json_string(row_, child.name);
      row_ += ':';
      write(child);
    }
    row_ += '}';
  }

  template <typename Element>
  void write_elements(const ParquetNode& node, ParquetColumnReader& first, Element&& element) {
    if (first.definition() < node.element_definition) return pass(node);
    for (;;) {
      element();
      if (!first.has_entry() || first.repetition() < node.element_repetition) return;
      if (first.repetition() > node.element_repetition) fail(node, "its lists are damaged");
      row_ += ',';
    }
  }

  // Keys of JSON are texts; others become their JSON.
  void write_entry(const ParquetNode& node) {
    const std::size_t at = row_.size();
    write(node.children[0]);
    if (row_[at] != '"') {
      const std::string key = row_.substr(at);
      row_.resize(at);
      append_json_string(row_, key);
    }
    row_ += ':';
    write(node.children[1]);
  }

  std::string path_;
  MappedFile file_;
  ParquetFooter footer_;
  ParquetSchema schema_;
  std::vector<bool> is_read_;  // of the fields
  std::vector<ParquetColumnReader> columns_;
  std::size_t next_group_ = 0;
  std::int64_t rows_in_group_ = 0;
  std::int64_t row_in_group_ = 0;
  std::int64_t rows_so_far_ = 0;  // of the groups begun
  std::int64_t number_ = 0;
  std::string row_;
};

}  // namespace

std::unique_ptr<RowSource> open_parquet(const fs::path& path, IsRead is_read) {
  return std::make_unique<Parquet>(path, is_read);
}

ParquetCount count_parquet_values(const fs::path& path, const IsRead& is_read) {
  return Parquet(path, is_read).count();
}

}  // namespace atl::data
