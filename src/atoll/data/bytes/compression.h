#pragma once

// Compressed files: which they are, and decoders that take and give them in pieces.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace atl::data {

/// How a file is compressed.
enum class Compression { kNone, kGzip, kZstd, kXz, kBzip2, kLz4 };

/// By the first bytes of a file, whatever its name.
Compression compression_of(std::string_view content);

/// Whether content begins with a frame that readers of zstd and lz4 skip.
bool is_skippable_frame(std::string_view content);

/// "gzip", "zstd", "xz", "bzip2" or "lz4"; "none".
const char* compression_name(Compression compression);

/// Whether an ending such as ".gz", in lower case with its dot, is one of compressed files.
bool is_compressed_ending(std::string_view ending);

/// What one step of a decoder did.
struct DecodeStep {
  std::size_t consumed = 0;  ///< bytes of the input
  std::size_t produced = 0;  ///< bytes of the output
  bool ended = false;        ///< a member of the file ended; another one may follow
};

/// A decoder of one kind of compressed data.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Goes on with `in`, into `out`; neither is empty. Throws std::runtime_error saying what is
  /// wrong with the input. After a step that ended a member the next step begins one.
  virtual DecodeStep step(std::span<const char> in, std::span<char> out) = 0;
};

/// A decoder for `compression`, which is not kNone. What it keeps is bounded: by 2 GiB (a window of
/// zstd --long=31), and mostly by some MiB.
std::unique_ptr<Decoder> make_decoder(Compression compression);

}  // namespace atl::data
