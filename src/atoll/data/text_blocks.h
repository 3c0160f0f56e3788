#pragma once

// How text is cut into documents and documents into the blocks that are held out or not.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace atl::data {

/// What separates documents in a text file.
enum class DocumentMode {
  kFile,       ///< Nothing: a file is one document.
  kBlankLine,  ///< One or more lines of nothing but white space, which belong to no document.
};

/// The length of the block that `text` begins with: all of it when it is at most block_bytes long,
/// else up to the last end of a line within block_bytes (one before a line that does not begin with
/// white space, if there is one), else to the last space, else to the last whole UTF-8 character.
std::size_t block_length(std::string_view text, std::size_t block_bytes);

/// Chooses blocks to hold out, evenly spread: takes one whenever at least half of it is owed to the
/// fraction. After any number of blocks the bytes taken differ from the fraction by at most half a
/// block.
class HeldOutStride {
 public:
  /// `fraction` in [0, 1).
  explicit HeldOutStride(double fraction) : fraction_(fraction) {}
  /// True when the next block, of so many bytes, is held out.
  bool take(std::size_t block_bytes);

 private:
  double fraction_;
  double owed_bytes_ = 0;
};

}  // namespace atl::data
