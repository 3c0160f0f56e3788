#include "atoll/data/bytes/text_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/data/bytes/compressing_testing.h"
#include "atoll/data/corpus.h"
#include "atoll/data/testing.h"
#include "atoll/data/tokenize.h"
#include "atoll/text/new_tokenizers.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::compress;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

constexpr Compression kAll[] = {Compression::kGzip, Compression::kZstd, Compression::kXz,
                                Compression::kBzip2, Compression::kLz4};

// Lines that no compressor makes short, of several pieces that a window holds at a time.
std::string long_text() {
  std::string text;
  std::uint32_t state = 1;
  for (int line = 0; line < 40000; ++line) {
    for (int i = 0; i < 3; ++i) {
      state = state * 1664525U + 1013904223U;
      text += std::to_string(state) + (state % 3 == 0 ? "\xC3\xA9 " : " ");
    }
    text += line % 50 == 0 ? "\n\n" : "\n";
  }
  return text;
}

std::string all_of(TextWindow& window) {
  std::string text;
  while (window.fill(1)) {
    text += window.view();
    window.consume(window.view().size());
  }
  return text;
}

class Compressed : public ::testing::TestWithParam<Compression> {
 protected:
  fs::path write(std::string_view name, std::string_view content) {
    write_file(directory_ / name, content);
    return directory_ / name;
  }
  TemporaryDirectory directory_;
};

TEST_P(Compressed, ContentIsThatOfAllMembers) {
  const std::string text = long_text();
  const std::string half = text.substr(0, 1000003);
  const fs::path path =
      write("a", compress(GetParam(), half) + compress(GetParam(), text.substr(half.size())) +
                     std::string(100, '\0'));  // as a tape leaves them
  TextWindow window(path);
  EXPECT_EQ(window.compression(), GetParam());
  EXPECT_EQ(all_of(window), text);
  EXPECT_EQ(window.position(), text.size());
  EXPECT_EQ(content_bytes(path), text.size());
  EXPECT_EQ(content_bytes(write("empty", compress(GetParam(), ""))), 0U);
}

TEST_P(Compressed, LinesAreThoseOfTheText) {
  const std::string text = long_text() + "without an end";
  TextWindow plain(write("plain", text));
  TextWindow window(write("a", compress(GetParam(), text)));
  while (const auto expected = plain.next_line()) {
    const auto line = window.next_line();
    ASSERT_TRUE(line);
    ASSERT_EQ(*line, *expected);
    ASSERT_EQ(window.position(), plain.position());
  }
  EXPECT_FALSE(window.next_line());
}

TEST_P(Compressed, CutOffOrDamagedFilesAreRefusedByByte) {
  const std::string content = compress(GetParam(), long_text());
  for (const std::size_t size : {content.size() / 3, content.size() - 1}) {
    const fs::path path = write("cut", content.substr(0, size));
    EXPECT_THAT(
        error_of([&] { content_bytes(path); }),
        AllOf(HasSubstr("cut is damaged at byte " + std::to_string(size) + " of " +
                        std::to_string(size)),
              HasSubstr(compression_name(GetParam())), HasSubstr("ends before its content does")));
  }
  std::string damaged = content;
  damaged[content.size() / 2] = static_cast<char>(damaged[content.size() / 2] ^ 0x55);
  EXPECT_THAT(error_of([&] { content_bytes(write("damaged", damaged)); }),
              HasSubstr("damaged is damaged at byte"));
  EXPECT_THAT(error_of([&] { content_bytes(write("more", content + "and more")); }),
              HasSubstr("what follows there is no such data"));
}

TEST_P(Compressed, ATextGivesTheTokensThatItGivesUncompressed) {
  const std::string text = long_text();
  const Tokenizer tokenizer = make_byte_tokenizer();
  for (const DocumentMode mode : {DocumentMode::kFile, DocumentMode::kBlankLine}) {
    std::string hashes[2];
    for (const bool is_compressed : {false, true}) {
      TokenizeOptions options{
          .inputs = {write("a.txt", is_compressed ? compress(GetParam(), text) : text)},
          .output = directory_ / "out",
          .documents = mode,
          .overwrite = true};
      tokenize_corpus(options, tokenizer);
      const Corpus corpus(options.output);
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(corpus.train().num_tokens()));
      corpus.train().copy(0, tokens);
      hashes[is_compressed ? 1 : 0] = tokenizer.decode(tokens);
    }
    EXPECT_EQ(hashes[0], hashes[1]);
    EXPECT_GT(hashes[0].size(), text.size() / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Compressed, ::testing::ValuesIn(kAll),
                         [](const auto& info) { return compression_name(info.param); });

TEST(TextWindow, FaultsOfCompressedTextAreNamedByLineAndByteOfTheContent) {
  const TemporaryDirectory directory;
  const Tokenizer tokenizer = make_byte_tokenizer();
  std::string text(3 << 20, 'a');
  text[100] = '\n';
  // Where a piece that is looked at ends, within a character.
  text.replace((1 << 20) - 1, 2, "\xC3\xA9");
  write_file(directory / "good.txt.gz", compress(Compression::kGzip, text));
  TokenizeOptions options{.inputs = {directory / "good.txt.gz"}, .output = directory / "out"};
  EXPECT_EQ(error_of([&] { tokenize_corpus(options, tokenizer); }), "");
  text[2 << 20] = '\xff';
  write_file(directory / "bad.txt.gz", compress(Compression::kGzip, text));
  options.inputs = {directory / "bad.txt.gz"};
  options.overwrite = true;
  EXPECT_THAT(error_of([&] { tokenize_corpus(options, tokenizer); }),
              HasSubstr("bad.txt.gz line 2 is not UTF-8 (byte 2097152 of its content)"));
}

TEST(TextWindow, ABombTakesNoMemory) {
  const TemporaryDirectory directory;
  // 512 MiB of one letter in some KiB: 16 frames of 32 MiB.
  const std::string frame = compress(Compression::kZstd, std::string(std::size_t{32} << 20, 'a'));
  std::string bomb;
  for (int i = 0; i < 16; ++i) bomb += frame;
  write_file(directory / "bomb.jsonl", bomb);
  EXPECT_LT(bomb.size(), 100000U);
  EXPECT_EQ(content_bytes(directory / "bomb.jsonl"), std::uint64_t{512} << 20);
  TextWindow window(directory / "bomb.jsonl");
  while (window.fill(1)) {
    EXPECT_LE(window.view().size(), std::size_t{4} << 20);
    window.consume(window.view().size());
  }
  TextWindow lines(directory / "bomb.jsonl");
  EXPECT_THAT(error_of([&] { lines.next_line(); }),
              AllOf(HasSubstr("bomb.jsonl"), HasSubstr("no line or row ends in 256 MiB")));
}

TEST(TextWindow, NamesInsideAreWithoutTheEndingOfCompression) {
  const TemporaryDirectory directory;
  const auto inside = [&](const char* name) {
    write_file(directory / name, compress(Compression::kGzip, "a"));
    return TextWindow(directory / name).name_inside().filename().string();
  };
  EXPECT_EQ(inside("a.csv.gz"), "a.csv");
  EXPECT_EQ(inside("a.tgz"), "a.tar");
  EXPECT_EQ(inside("a.csv"), "a.csv");
}

}  // namespace
}  // namespace atl::data
