#pragma once

#include <cstddef>
#include <string_view>

#include "atoll/data/bytes/text_window.h"
#include "atoll/data/text_blocks.h"

namespace atl::data {

/// The documents of a text file, in order and in pieces, so that no document need be in memory.
/// None of them is empty.
class DocumentStream {
 public:
  /// `window` must outlive this.
  DocumentStream(TextWindow& window, DocumentMode mode);

  /// Goes to the next document; false behind the last one. All of the one before must be consumed.
  bool next();
  /// What is left of the document, at least `bytes` of it unless it is shorter; empty at its end.
  /// Valid until the next call of a member. Throws as TextWindow does, and Error(kUser) for a line
  /// of white space of more than kMaxRowBytes.
  std::string_view front(std::size_t bytes);
  /// Moves on within the document.
  void consume(std::size_t bytes);

 private:
  // Finds out more of what belongs to the document: a line, or what is at hand of it.
  void extend();

  TextWindow& window_;
  DocumentMode mode_;
  std::size_t known_ = 0;        // bytes at the front of the window that are the document's
  bool is_within_line_ = false;  // the known ones end within a line that is not blank
  bool has_ended_ = true;        // nothing but the known ones is the document's
};

}  // namespace atl::data
