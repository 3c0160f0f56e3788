#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace atl::cli {

/// A line of UTF-8 text that is being edited, with the lines entered before it. Knows no terminal.
class EditedLine {
 public:
  /// What a key does.
  enum class Key {
    kLeft,
    kRight,
    kWordLeft,
    kWordRight,
    kHome,
    kEnd,
    kBackspace,
    kDelete,
    kDeleteWord,  ///< the word before the cursor
    kDeleteToEnd,
    kDeleteToBegin,
    kEarlier,  ///< the line entered before
    kLater,
  };

  const std::string& text() const { return text_; }
  /// Bytes before the cursor, whole characters.
  std::size_t cursor() const { return cursor_; }

  void insert(std::string_view text);
  void press(Key key);
  /// The line is entered: it becomes the newest of those before, unless it is empty or the same as
  /// that one, and the next one begins. Returns it.
  std::string enter();
  /// The line is given up.
  void clear();
  /// Puts a line among those entered before.
  void remember(const std::string& line);

 private:
  std::size_t before(std::size_t at) const;  // where the character that ends there begins
  std::size_t after(std::size_t at) const;
  std::size_t word_before() const;
  std::size_t word_after() const;
  void remove(std::size_t begin, std::size_t end);
  void show_entered(std::size_t number);

  std::string text_;
  std::size_t cursor_ = 0;
  std::vector<std::string> entered_;
  std::size_t shown_ = 0;  // of entered_; its size: the new line
  std::string new_line_;   // while an earlier one is shown
};

}  // namespace atl::cli
