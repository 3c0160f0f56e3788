#include "atoll/cli/chat/edited_line.h"

#include <gtest/gtest.h>

#include "atoll/text/display_width.h"

namespace atl::cli {
namespace {

using Key = EditedLine::Key;

TEST(EditedLine, MovesAndDeletesWholeCharacters) {
  EditedLine line;
  line.insert("aé漢");
  line.press(Key::kLeft);
  EXPECT_EQ(line.cursor(), 3U);
  line.press(Key::kBackspace);
  EXPECT_EQ(line.text(), "a漢");
  line.press(Key::kDelete);
  EXPECT_EQ(line.text(), "a");
  line.press(Key::kDelete);
  line.press(Key::kHome);
  line.press(Key::kBackspace);
  line.press(Key::kLeft);
  EXPECT_EQ(line.text(), "a");
  line.press(Key::kRight);
  line.press(Key::kRight);
  line.insert("b");
  EXPECT_EQ(line.text(), "ab");
}

TEST(EditedLine, Words) {
  EditedLine line;
  line.insert("one two  three");
  line.press(Key::kWordLeft);
  line.press(Key::kWordLeft);
  EXPECT_EQ(line.cursor(), 4U);
  line.press(Key::kWordRight);
  EXPECT_EQ(line.cursor(), 7U);
  line.press(Key::kDeleteWord);
  EXPECT_EQ(line.text(), "one   three");
  line.press(Key::kDeleteToEnd);
  EXPECT_EQ(line.text(), "one ");
  line.press(Key::kDeleteToBegin);
  EXPECT_EQ(line.text(), "");
}

TEST(EditedLine, EarlierLinesComeBackAndTheNewOneIsKept) {
  EditedLine line;
  for (const char* entered : {"first", "second", "second", ""}) {
    line.insert(entered);
    EXPECT_EQ(line.enter(), entered);
  }
  line.insert("new");
  line.press(Key::kEarlier);
  EXPECT_EQ(line.text(), "second");
  line.press(Key::kEarlier);
  EXPECT_EQ(line.text(), "first");
  line.press(Key::kEarlier);
  EXPECT_EQ(line.text(), "first");
  line.press(Key::kLater);
  line.press(Key::kLater);
  EXPECT_EQ(line.text(), "new");
  line.press(Key::kLater);
  EXPECT_EQ(line.text(), "new");
  line.clear();
  line.press(Key::kEarlier);
  EXPECT_EQ(line.text(), "second");
}

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(text::display_width(""), 0U);
  EXPECT_EQ(text::display_width("aé"), 2U);
  EXPECT_EQ(text::display_width("漢字"), 4U);
  EXPECT_EQ(text::display_width("e\xCC\x81"), 1U);
  EXPECT_EQ(text::display_width("\xFF"), 0U);
}

}  // namespace
}  // namespace atl::cli
