#include "atoll/base/files/text_encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "atoll/base/error.h"

namespace atl {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& content) {
  try {
    refuse_utf16("a.txt", content);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

// A Latin text as UTF-16.
std::string wide(const std::string& text, bool little) {
  std::string bytes;
  for (const char c : text) bytes += little ? std::string{c, '\0'} : std::string{'\0', c};
  return bytes;
}

TEST(TextEncoding, Utf16IsRefusedWithHowToConvertIt) {
  EXPECT_EQ(refusal("\xff\xfe" + wide("In the beginning", true)),
            "a.txt is UTF-16 text, and atoll reads UTF-8; convert it: iconv -f UTF-16 -t UTF-8 "
            "a.txt >a-utf8.txt");
  EXPECT_THAT(refusal("\xfe\xff" + wide("In the beginning", false)), HasSubstr("-f UTF-16 "));
  EXPECT_THAT(refusal(std::string("\xff\xfe\0\0I\0\0\0", 8)), HasSubstr("-f UTF-32 "));
  EXPECT_THAT(refusal(wide("In the beginning", true)), HasSubstr("-f UTF-16LE "));
  EXPECT_THAT(refusal(wide("In the beginning", false)), HasSubstr("-f UTF-16BE "));
}

TEST(TextEncoding, AByteOrderMarkIsNoPartOfAText) {
  EXPECT_EQ(without_byte_order_mark("\xef\xbb\xbfIn"), "In");
  EXPECT_EQ(without_byte_order_mark("\xef\xbb\xbf"), "");
  for (const char* text : {"", "In", "\xef\xbb", "I\xef\xbb\xbfn"}) {
    EXPECT_EQ(without_byte_order_mark(text), text);
  }
}

TEST(TextEncoding, OtherBytesAreNotTakenForIt) {
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal("In the beginning"), "");
  EXPECT_EQ(refusal("\xef\xbb\xbfIn the beginning"), "");
  EXPECT_EQ(refusal(std::string(100, '\0')), "");
  EXPECT_EQ(refusal("one zero" + std::string(1, '\0') + " in a text that is long enough"), "");
}

}  // namespace
}  // namespace atl
