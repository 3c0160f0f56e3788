#include "atoll/text/speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::text {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace {

TEST(Speed, DocumentsEndWithALineAndMissNothing) {
  EXPECT_THAT(cut_documents("a\nbc\n\nd", 0), ElementsAre("a\n", "bc\n", "\n", "d"));
  EXPECT_THAT(cut_documents("a\nbc\nd\n", 5), ElementsAre("a\nbc\n", "d\n"));
  EXPECT_THAT(cut_documents("a\nbc\n", 100), ElementsAre("a\nbc\n"));
  EXPECT_THAT(cut_documents("a line too long\nb\n", 4), ElementsAre("a line too long\n", "b\n"));
  EXPECT_THAT(cut_documents("no line at all", 3), ElementsAre("no line at all"));
  EXPECT_THAT(cut_documents("", 3), IsEmpty());
}

TEST(Speed, RoundsAreTimedAndIdsAreThoseOfTheTokenizer) {
  const std::string_view text = "the sea and the ring\nthe sea\n";
  const Tokenizer tokenizer = train_bpe(std::span(&text, 1), {.vocab_size = 270});
  std::vector<std::int32_t> ids;
  EXPECT_THAT(time_encoding(tokenizer, cut_documents(text, 0), 3, ids), SizeIs(3));
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_THAT(time_words(cut_documents(text, 0), 2), SizeIs(2));
  EXPECT_THAT(time_training(text, {.vocab_size = 270}, 2), SizeIs(2));
}

}  // namespace
}  // namespace atl::text
