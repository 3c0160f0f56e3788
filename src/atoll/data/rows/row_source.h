#pragma once

// Rows of a file, whatever its format, as the text of JSON objects.

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace atl::data {

/// Whether somebody reads the column, or key, of that name.
using IsRead = std::function<bool(std::string_view)>;

/// A row of a file.
struct RowText {
  std::string_view json;         ///< an object; valid until the next row is asked for
  std::int64_t number = 0;       ///< from 1, in units of RowSource::unit()
  std::uint64_t bytes_done = 0;  ///< of the file's content, up to the end of the row
};

/// The rows of a file, each once and in the order of the file. Throws Error(kUser) that names the
/// file and the place for what is damaged or of a kind that is not read.
class RowSource {
 public:
  virtual ~RowSource() = default;
  /// The next row; nothing behind the last one.
  virtual std::optional<RowText> next() = 0;
  /// Bytes of the file's content. To be called when next() has given nothing.
  virtual std::uint64_t content_bytes() const = 0;
  /// What is counted: "row", or "line".
  virtual const char* unit() const { return "row"; }
};

}  // namespace atl::data
