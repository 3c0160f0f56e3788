#include "atoll/data/rows/csv.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/data/columns/json_writer.h"

namespace atl::data {

namespace {

class Csv final : public RowSource {
 public:
  Csv(TextWindow window, IsRead is_read) : window_(std::move(window)) {
    window_.skip_byte_order_mark();
    separator_ = choose_separator();
    if (!read_record()) return;  // an empty file
    for (std::size_t i = 0; i < num_values_; ++i) {
      const std::string& name = values_[i];
      if (name.empty()) fail("names no column", fmt::format("column {} has no name", i + 1));
      const bool is_twice = std::any_of(columns_.begin(), columns_.end(),
                                        [&](const Column& column) { return column.name == name; });
      if (is_twice) fail("names a column twice", fmt::format("\"{}\"", name));
      columns_.push_back({name, is_read(name)});
    }
    // Without one that is read the reader of the rows tells of all.
    const bool has_read = std::any_of(columns_.begin(), columns_.end(),
                                      [](const Column& column) { return column.is_read; });
    for (Column& column : columns_) column.is_read |= !has_read;
  }

  std::optional<RowText> next() override {
    if (columns_.empty() || !read_record()) return std::nullopt;
    if (num_values_ != columns_.size()) {
      fail(fmt::format("has {} values, and there are {} columns", num_values_, columns_.size()),
           "quote values that hold a separator or a line end");
    }
    row_.assign(1, '{');
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) row_ += ',';
      append_json_string(row_, columns_[i].name);
      row_ += ':';
      append_json_string(row_, columns_[i].is_read ? std::string_view(values_[i]) : "");
    }
    row_ += '}';
    return RowText{row_, first_line_, window_.position()};
  }
  std::uint64_t content_bytes() const override { return window_.position(); }
  const char* unit() const override { return "row at line"; }

 private:
  struct Column {
    std::string name;
    bool is_read = false;
  };

  [[noreturn]] void fail(std::string_view what, std::string_view remedy) const {
    throw user_error("{} line {} {}; {}", window_.path().string(), first_line_, what, remedy);
  }

  char choose_separator() {
    std::string ending = window_.name_inside().extension().string();
    std::transform(ending.begin(), ending.end(), ending.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (ending == ".tsv") return '\t';
    constexpr std::array<char, 3> kSeparators = {',', ';', '\t'};
    std::array<std::size_t, 3> counts = {};
    bool is_quoted = false;
    for (std::size_t at = 0; window_.fill(at + 1) && at < kMaxRowBytes; ++at) {
      const char letter = window_.view()[at];
      if (letter == '"') is_quoted = !is_quoted;
      if (is_quoted) continue;
      if (letter == '\n' || letter == '\r') break;
      for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += letter == kSeparators[i] ? 1 : 0;
    }
    return kSeparators[static_cast<std::size_t>(std::max_element(counts.begin(), counts.end()) -
                                                counts.begin())];
  }

  std::string& next_value() {
    if (num_values_ == values_.size()) values_.emplace_back();
    std::string& value = values_[num_values_++];
    value.clear();
    return value;
  }

  // The letter at `at` of the view; nothing behind the end.
  std::optional<char> letter_at(std::size_t at) {
    if (at >= window_.view().size() && !window_.fill(at + 1)) return std::nullopt;
    if (at > kMaxRowBytes) fail("has more than 256 MiB", "look for a quote that does not end");
    return window_.view()[at];
  }

  // Puts a record into values_; false at the end.
  bool read_record() {
    for (;;) {
      first_line_ = line_;
      const auto letter = letter_at(0);
      if (!letter) return false;
      if (*letter != '\n' && *letter != '\r') break;
      window_.consume(end_of_line(0));
    }
    num_values_ = 0;
    std::size_t at = 0;
    for (;;) {
      std::string& value = next_value();
      at = letter_at(at) == '"' ? read_quoted(at, value) : read_plain(at, value);
      const auto letter = letter_at(at);
      if (letter == separator_) {
        ++at;
        continue;
      }
      if (letter) at = end_of_line(at);
      window_.consume(at);
      return true;
    }
  }

  // The place behind the line end at `at`.
  std::size_t end_of_line(std::size_t at) {
    ++line_;
    return at + (letter_at(at) == '\r' && letter_at(at + 1) == '\n' ? 2 : 1);
  }

  std::size_t read_plain(std::size_t at, std::string& value) {
    const std::array<char, 3> ends = {separator_, '\n', '\r'};
    for (;;) {
      if (!letter_at(at)) return at;
      const std::string_view rest = window_.view().substr(at);
      const std::size_t size =
          std::min(rest.find_first_of(std::string_view(ends.data(), ends.size())), rest.size());
      value += rest.substr(0, size);
      at += size;
      if (size < rest.size()) return at;
    }
  }

  std::size_t read_quoted(std::size_t at, std::string& value) {
    for (++at;;) {
      if (!letter_at(at)) {
        fail("has a quote that does not end", "end it, or double a quote that is text");
      }
      const std::string_view rest = window_.view().substr(at);
      const std::size_t size = std::min(rest.find('"'), rest.size());
      const std::string_view piece = rest.substr(0, size);
      line_ += std::count(piece.begin(), piece.end(), '\n');
      value += piece;
      at += size;
      if (size == rest.size()) continue;
      const auto behind = letter_at(++at);
      if (behind == '"') {
        value += '"';
        ++at;
        continue;
      }
      if (behind && *behind != separator_ && *behind != '\n' && *behind != '\r') {
        fail("has a quoted value that does not end with its quote", "double a quote that is text");
      }
      return at;
    }
  }

  TextWindow window_;
  char separator_ = ',';
  std::vector<Column> columns_;
  std::vector<std::string> values_;  // some of them of an earlier record
  std::size_t num_values_ = 0;
  std::int64_t line_ = 1;
  std::int64_t first_line_ = 1;  // of the record
  std::string row_;
};

}  // namespace

std::unique_ptr<RowSource> open_csv(TextWindow window, IsRead is_read) {
  return std::make_unique<Csv>(std::move(window), std::move(is_read));
}

}  // namespace atl::data
