#include "atoll/data/text_blocks.h"
#include "atoll/base/files/file.h"
#include "atoll/data/bytes/document_stream.h"
#include "atoll/data/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace atl::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> documents(std::string_view text, DocumentMode mode) {
  const testing::TemporaryDirectory directory;
  write_file(directory / "a.txt", text);
  TextWindow window(directory / "a.txt");
  DocumentStream stream(window, mode);
  std::vector<std::string> found;
  while (stream.next()) {
    std::string& document = found.emplace_back();
    // In pieces, as they are read.
    for (std::string_view piece = stream.front(2); !piece.empty(); piece = stream.front(2)) {
      document += piece.substr(0, 2);
      stream.consume(std::min<std::size_t>(piece.size(), 2));
    }
  }
  return found;
}

std::vector<std::string> blocks(std::string_view text, std::size_t block_bytes) {
  std::vector<std::string> found;
  while (!text.empty()) {
    const std::size_t length = block_length(text, block_bytes);
    found.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return found;
}

TEST(Documents, WholeFileIsOne) {
  EXPECT_THAT(documents("a\n\nb\n", DocumentMode::kFile), ElementsAre("a\n\nb\n"));
  EXPECT_THAT(documents("", DocumentMode::kFile), IsEmpty());
}

TEST(Documents, AreSeparatedByLinesOfWhiteSpace) {
  const auto mode = DocumentMode::kBlankLine;
  EXPECT_THAT(documents("a\nb\n\nc\n", mode), ElementsAre("a\nb\n", "c\n"));
  EXPECT_THAT(documents("\n \t\na\r\n\r\n\n  b", mode), ElementsAre("a\r\n", "  b"));
  EXPECT_THAT(documents("a\n\n\n", mode), ElementsAre("a\n"));
  EXPECT_THAT(documents("\n\n \n", mode), IsEmpty());
}

TEST(Blocks, EndAtTheLastLineThatFits) {
  EXPECT_THAT(blocks("aaa\nbbb\nccc\n", 9), ElementsAre("aaa\nbbb\n", "ccc\n"));
  EXPECT_THAT(blocks("aaa\nbbb\n", 8), ElementsAre("aaa\nbbb\n"));
}

TEST(Blocks, PreferALineThatDoesNotBeginWithWhiteSpace) {
  EXPECT_THAT(blocks("aaa\nbbb\n  ccc\n", 10), ElementsAre("aaa\n", "bbb\n  ccc\n"));
  EXPECT_THAT(blocks("aaa\n\nbbb\n", 6), ElementsAre("aaa\n\n", "bbb\n"));
  EXPECT_THAT(blocks(" aaa\n bbb\n", 6), ElementsAre(" aaa\n", " bbb\n"));
}

TEST(Blocks, FallBackToSpacesAndThenToWholeCharacters) {
  EXPECT_THAT(blocks("one two three", 9), ElementsAre("one two", " three"));
  EXPECT_THAT(blocks("éééé", 5), ElementsAre("éé", "éé"));
  EXPECT_THAT(blocks("\x80\x80\x80\x80\x80\x80", 4), ElementsAre("\x80\x80\x80\x80", "\x80\x80"));
}

TEST(HeldOutStride, MeetsTheFractionWithinHalfABlockAllTheWay) {
  for (const double fraction : {0.01, 0.05, 0.1, 0.3, 0.5}) {
    HeldOutStride stride(fraction);
    double all = 0;
    double taken = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
      const std::size_t block = 500 + (i * 7919) % 1000;
      all += static_cast<double>(block);
      taken += stride.take(block) ? static_cast<double>(block) : 0;
      ASSERT_NEAR(taken, fraction * all, 750) << i;
    }
  }
}

TEST(HeldOutStride, TakesNothingOfNothing) {
  HeldOutStride stride(0);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(stride.take(10));
}

}  // namespace
}  // namespace atl::data
