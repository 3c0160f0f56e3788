#pragma once

#include <optional>
#include <string>

#include "atoll/cli/chat/edited_line.h"

namespace atl::cli {

/// Reads lines from standard input; from a terminal with the keys that people know from a shell,
/// and with earlier lines.
class LineEditor {
 public:
  /// The result of reading one line.
  struct Line {
    enum class End { kEntered, kInterrupted, kClosed };  ///< Enter, Ctrl-C, Ctrl-D or no more input
    End end = End::kEntered;
    std::string text;
  };

  /// Shows `prompt`, where input is a terminal, and returns the next line. Text that is pasted may
  /// have several lines.
  Line read(const std::string& prompt, bool is_bold = false);
  /// Whether input and output are a terminal.
  static bool is_terminal();

 private:
  Line edit(const std::string& prompt, bool is_bold);
  void draw(const std::string& prompt, bool is_bold) const;
  // The bytes of one key, without the first.
  void escape();
  void paste();

  EditedLine line_;
};

}  // namespace atl::cli
