#pragma once

// The content of a file from front to back, decompressed on the way.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/data/bytes/compression.h"

namespace atl::data {

/// The longest row, or line, of a file that is read in pieces: 256 MiB. More is damage, or a bomb.
inline constexpr std::size_t kMaxRowBytes = std::size_t{1} << 28;

/// Whether compressed files are decompressed.
enum class Decompress { kAlways, kNever };

/// A part of a file's content that moves from front to back. Of a file that is not compressed it is
/// all that is left, in place; of a compressed one what was asked for and some MiB, so memory does
/// not grow with what the file becomes. Throws Error(kUser), with the path and the byte, where
/// compressed data end too soon or are damaged.
class TextWindow {
 public:
  /// Opens a regular file. Throws as MappedFile does.
  explicit TextWindow(std::filesystem::path path, Decompress decompress = Decompress::kAlways);

  const std::filesystem::path& path() const { return path_; }
  Compression compression() const { return compression_; }
  /// Its name without the ending that says how it is compressed, when it is.
  std::filesystem::path name_inside() const;

  /// The content from position() on, as far as it is at hand. Valid until fill() or consume().
  std::string_view view() const;
  /// Makes the view at least so long; false when the content ends before.
  bool fill(std::size_t bytes);
  /// Moves on by so many bytes, which the view has.
  void consume(std::size_t bytes);
  /// Moves behind the byte order mark that the content may begin with.
  void skip_byte_order_mark();
  /// Bytes of the content before the view.
  std::uint64_t position() const { return position_; }
  /// Bytes in the file; of a compressed file not those of the content.
  std::uint64_t file_bytes() const { return file_.bytes().size(); }

  /// The next line, without its end; nothing behind the last one. It is valid until the next call
  /// of a member. Throws Error(kUser) for a line of more than kMaxRowBytes of a compressed file.
  std::optional<std::string_view> next_line();
  /// How far the view reaches with byte `letter` at its end, from byte `from` of the view on;
  /// nothing when it does not come. Reads on as next_line() does, and throws as it does.
  std::optional<std::size_t> find(char letter, std::size_t from);

 private:
  std::string_view whole_file() const;
  void decode();  // some bytes more
  [[noreturn]] void fail(const std::string& problem) const;

  std::filesystem::path path_;
  MappedFile file_;
  Compression compression_ = Compression::kNone;
  std::uint64_t position_ = 0;
  // Of a compressed file:
  std::unique_ptr<Decoder> decoder_;
  std::size_t consumed_ = 0;  // bytes of the file
  bool is_within_ = false;    // a member that has not ended
  bool has_ended_ = false;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // of the view in the buffer
  std::size_t end_ = 0;
};

/// Bytes of the content of a file: of a compressed one, all of it is decoded and so checked. Throws
/// as TextWindow does.
std::uint64_t content_bytes(const std::filesystem::path& path);

}  // namespace atl::data
