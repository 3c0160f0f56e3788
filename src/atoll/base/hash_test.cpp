#include "atoll/base/hash.h"

#include <gtest/gtest.h>

#include <string>

#include "atoll/base/check.h"

namespace atl {
namespace {

// Published test vector: XXH3-128 of no bytes with seed 0.
TEST(Hash, OfNothingIsTheKnownAnswer) {
  EXPECT_EQ(to_hex(hash_bytes(nullptr, 0)), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_hex(Hasher().digest()), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, StreamedInAnyPiecesEqualsOneShot) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>(i * 7 + i / 256);
  const Hash128 whole = hash_bytes(text.data(), text.size());
  for (const std::size_t piece : {1U, 3U, 64U, 255U, 256U, 1024U, 3000U}) {
    Hasher hasher;
    for (std::size_t begin = 0; begin < text.size(); begin += piece) {
      hasher.update(text.data() + begin, std::min(piece, text.size() - begin));
      hasher.update(nullptr, 0);
      (void)hasher.digest();  // looking changes nothing
    }
    EXPECT_EQ(hasher.digest(), whole) << piece;
  }
}

TEST(Hash, SeesEveryBit) {
  std::string text(40, 'a');
  const Hash128 whole = hash_bytes(text.data(), text.size());
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(hash_bytes(text.data(), text.size()), whole);
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  }
}

TEST(Check, PrintsFileConditionAndValues) {
  try {
    const int tokens = 3;
    ATOLL_CHECK(tokens == 4, "{} tokens", tokens);
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    EXPECT_NE(message.find("hash_test.cpp:"), std::string::npos);
    EXPECT_NE(message.find("tokens == 4: 3 tokens"), std::string::npos);
  }
  EXPECT_NO_THROW(ATOLL_CHECK(true));
  EXPECT_THROW(ATOLL_CHECK_EQ(1, 2), Error);
}

TEST(Error, ExitsWithTwoForTheUsersMistakeOnly) {
  EXPECT_EQ(user_error("no {}", 1).exit_code(), 2);
  EXPECT_EQ(damaged_error("no {}", 1).exit_code(), 1);
  EXPECT_STREQ(make_error(ErrorKind::kIo, "no {}", 1).what(), "no 1");
}

}  // namespace
}  // namespace atl
