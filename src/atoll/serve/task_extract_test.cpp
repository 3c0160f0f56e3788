#include "atoll/serve/task_extract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(AnswerPattern, FindsTheFirstGroupOfTheFirstMatch) {
  const AnswerPattern number("#### ([-0-9.,]+)", "--extract");
  EXPECT_EQ(number.find("so 3 + 4 = 7\n#### 7\n#### 8"), "7");
  EXPECT_EQ(number.find("#### -1,250.5 euros"), "-1,250.5");
  EXPECT_EQ(number.find("seven"), std::nullopt);
  EXPECT_EQ(number.find(""), std::nullopt);
}

TEST(AnswerPattern, WithoutAGroupIsAllOfTheMatch) {
  EXPECT_EQ(AnswerPattern("[A-D]", "--extract").find("the answer is C."), "C");
  EXPECT_EQ(AnswerPattern("(?:x|y)z", "--extract").find("a yz"), "yz");
}

TEST(AnswerPattern, AGroupWithoutPartInTheMatchFindsNothing) {
  EXPECT_EQ(AnswerPattern("yes|no(t)", "--extract").find("yes"), std::nullopt);
  EXPECT_EQ(AnswerPattern("yes|no(t)", "--extract").find("not"), "t");
  EXPECT_EQ(AnswerPattern("a()", "--extract").find("ba"), "");
}

TEST(AnswerPattern, SeesCharactersAndNotBytes) {
  EXPECT_EQ(AnswerPattern("is (\\w)\\W", "--extract").find("it is é!"), "é");
}

TEST(AnswerPattern, RefusesWhatIsNotAnExpression) {
  for (const char* pattern : {"(", "[z-a]", "a\\C", "\xFF"}) {
    try {
      const AnswerPattern parsed(pattern, "--extract");
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(), StartsWith("--extract: the regular expression is not valid"));
    }
  }
}

TEST(AnswerPattern, GivesUpOnWhatWouldTakeForever) {
  const AnswerPattern slow("(x+x+)+[yz]", "--extract");
  try {
    slow.find(std::string(60, 'x'));
    ADD_FAILURE() << "found, or not, in time";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("gave up on a text of 60 bytes"));
  }
}

TEST(Comparable, IsTrimmedOfWhiteSpaceOfAnyKind) {
  EXPECT_EQ(comparable(" \n\t two words\xC2\xA0\r\n", nullptr), "two words");
  EXPECT_EQ(comparable(" \n", nullptr), "");
  const AnswerPattern pattern("answer:(.*)", "--extract");
  EXPECT_EQ(comparable("answer:  42  \nanswer: 43", &pattern), "42");
  EXPECT_EQ(comparable("42", &pattern), std::nullopt);
}

}  // namespace
}  // namespace atl::serve
