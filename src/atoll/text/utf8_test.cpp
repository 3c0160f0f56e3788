#include "atoll/text/utf8.h"

#include <gtest/gtest.h>

#include "atoll/text/byte_level.h"

namespace atl::text {
namespace {

TEST(Utf8, EveryScalarValueRoundTripsAndNothingElseIsValid) {
  for (char32_t c = 0; c <= 0x110000; ++c) {
    if (c == 0x110000 || (c >= 0xD800 && c < 0xE000)) {
      std::string bytes;
      append_utf8(c, bytes);
      EXPECT_EQ(utf8_step(bytes).kind, Utf8Kind::kInvalid) << static_cast<unsigned>(c);
      if (c != 0x110000) c = 0xDFFF;
      continue;
    }
    std::string bytes;
    append_utf8(c, bytes);
    const Utf8Step step = utf8_step(bytes);
    ASSERT_TRUE(step.kind == Utf8Kind::kValid && step.size == bytes.size())
        << static_cast<unsigned>(c);
    ASSERT_EQ(decode_utf8(bytes), c);
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      ASSERT_EQ(utf8_step(bytes.substr(0, cut)).kind, Utf8Kind::kIncomplete);
    }
  }
}

TEST(Utf8, OverlongFormsAndStrayBytesAreInvalid) {
  for (const char* bytes : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xF0\x80\x80\x80",
                            "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_EQ(utf8_step(bytes).kind, Utf8Kind::kInvalid);
    EXPECT_EQ(utf8_step(bytes).size, 1U);
  }
  EXPECT_EQ(utf8_step("\xE2\x82z").size,
            2U);  // a maximal subpart: two bytes that began a character
}

TEST(Utf8, PrefixesAreFoundAtEveryAlignment) {
  for (std::size_t ascii = 0; ascii < 20; ++ascii) {
    const std::string valid = std::string(ascii, 'a') + "é";
    EXPECT_EQ(valid_utf8_prefix(valid + "\xFFtail tail tail"), valid.size());
    EXPECT_EQ(invalid_utf8_prefix("\xFF\xC3" + valid), 2U);
  }
}

TEST(Utf8, WhiteSpaceIsUnicodesTwentyFive) {
  int count = 0;
  for (char32_t c = 0; c < 0x110000; ++c) count += is_white_space(c) ? 1 : 0;
  EXPECT_EQ(count, 25);
  for (const char32_t c :
       {U'\t', U'\u0085', U'\u00a0', U'\u1680', U'\u2000', U'\u200a', U'\u3000'}) {
    EXPECT_TRUE(is_white_space(c)) << static_cast<unsigned>(c);
  }
  EXPECT_FALSE(is_white_space(U'\u180e'));
  EXPECT_FALSE(is_white_space(U'\u200b'));
}

TEST(ByteLevel, EveryByteHasItsOwnPrintableCharacter) {
  EXPECT_EQ(to_byte_level(" the\n"), "ĠtheĊ");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::string spelled = to_byte_level(all);
  EXPECT_EQ(from_byte_level(spelled), all);
  EXPECT_EQ(spelled.find_first_of(all.substr(0, 0x21)), std::string::npos);  // no control, no space
  EXPECT_EQ(from_byte_level("a b"), std::nullopt);
  EXPECT_EQ(from_byte_level("한"), std::nullopt);
}

}  // namespace
}  // namespace atl::text
