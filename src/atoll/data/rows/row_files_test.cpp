// Rows of text formats: JSON arrays, CSV, tars. Tables of other programs:
// tables_test.

#include "atoll/data/rows/row_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/data/corpus.h"
#include "atoll/data/testing.h"
#include "atoll/data/tokenize.h"
#include "atoll/text/new_tokenizers.h"

namespace atl::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

class RowFiles : public ::testing::Test {
 protected:
  // The texts of the rows of a file with that content.
  std::vector<std::string> texts(const char* name, std::string_view content,
                                 const Fields& fields = {}) {
    write_file(directory_ / name, content);
    std::vector<std::string> found;
    numbers_.clear();
    for_each_row(directory_ / name, input_format(directory_ / name), fields,
                 [&](const JsonlLine& line) {
                   found.push_back(line.text);
                   numbers_.push_back(line.number);
                 });
    return found;
  }
  std::string error(const char* name, std::string_view content) {
    return error_of([&] { texts(name, content); });
  }

  TemporaryDirectory directory_;
  std::vector<std::int64_t> numbers_;
};

TEST_F(RowFiles, ElementsOfAnArrayAreRows) {
  EXPECT_THAT(
      texts("a.json", "\xEF\xBB\xBF [ {\"text\": \"a]\\\"},\"},\n{\"text\":\"b\",\"n\":[{}]} ]\n"),
      ElementsAre("a]\"},", "b"));
  EXPECT_THAT(numbers_, ElementsAre(1, 2));
  EXPECT_THAT(texts("a.json", "[]"), ElementsAre());
  EXPECT_THAT(error("a.json", "[{\"text\": \"a\"}, {\"text\": \"b\""),
              AllOf(HasSubstr("a.json is no JSON array"), HasSubstr("ends within a row")));
  EXPECT_THAT(error("a.json", "[{\"text\": \"a\"}"), HasSubstr("ends"));
  EXPECT_THAT(error("a.json", "[{\"text\": \"a\"}] {}"), HasSubstr("something follows"));
  EXPECT_THAT(error("a.json", "[{\"text\": \"a\"},]"), HasSubstr("a row is missing"));
  EXPECT_THAT(error("a.json", "[{\"text\": \"a\"}, 7]"),
              HasSubstr("a.json row 2 is not an object"));
  EXPECT_THAT(error("a.json", "[{\"text\": \"a\"}}, {}]"), HasSubstr("a } has no {"));
}

TEST_F(RowFiles, RecordsOfCsvAreRows) {
  EXPECT_THAT(
      texts("a.csv",
            "\xEF\xBB\xBFid,text\r\n1,\"two\r\nlines, \"\"quoted\"\"\"\r\n\r\n2,plain \"here\"\n"),
      ElementsAre("two\r\nlines, \"quoted\"", "plain \"here\""));
  EXPECT_THAT(numbers_, ElementsAre(2, 5));
  EXPECT_THAT(texts("a.tsv", "text\tn\na, b\t1\n"), ElementsAre("a, b"));
  EXPECT_THAT(texts("a.csv", "text;n\na, b;1"), ElementsAre("a, b"));
  Fields fields;
  fields.prompt = "question";
  fields.completion = "answer";
  EXPECT_THAT(texts("a.csv", "question,answer\n2+2?, 4\n", fields), ElementsAre("2+2? 4"));
  EXPECT_THAT(texts("a.csv", ""), ElementsAre());
}

TEST_F(RowFiles, DamagedCsvIsRefusedByLine) {
  EXPECT_THAT(error("a.csv", "id,text\n1,a\n2,b,c\n"),
              HasSubstr("a.csv line 3 has 3 values, and there are 2 columns"));
  EXPECT_THAT(error("a.csv", "id,text\n1\n"), HasSubstr("has 1 values"));
  EXPECT_THAT(error("a.csv", "id,text\n1,\"a\n\n"),
              HasSubstr("line 2 has a quote that does not end"));
  EXPECT_THAT(error("a.csv", "id,text\n1,\"a\"b\n"), HasSubstr("does not end with its quote"));
  EXPECT_THAT(error("a.csv", "text,text\n1,2\n"), HasSubstr("names a column twice"));
  EXPECT_THAT(error("a.csv", "text,\n1,2\n"), HasSubstr("names no column"));
  EXPECT_THAT(error("a.csv", "id,text\n1,\xff\n"), HasSubstr("a.csv row at line 2 is not UTF-8"));
  // The keys of a table that nothing is read of.
  EXPECT_THAT(error("a.csv", "question,answer\n1,2\n"), HasSubstr("--field prompt=question"));
}

// A member of a tar.
std::string member(const std::string& name, const std::string& content, char type = '0') {
  std::string block(512, '\0');
  std::memcpy(block.data(), name.data(), name.size());
  const std::string size = fmt::format("{:011o}", content.size());
  std::memcpy(block.data() + 124, size.data(), size.size());
  block[156] = type;
  std::memcpy(block.data() + 257, "ustar\00000", 8);
  std::memset(block.data() + 148, ' ', 8);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  const std::string checksum = fmt::format("{:06o}", sum);
  std::memcpy(block.data() + 148, checksum.data(), checksum.size());
  return block + content + std::string((512 - content.size() % 512) % 512, '\0');
}

TEST_F(RowFiles, MembersOfATarWithOneKeyAreARow) {
  const std::string tar = member("set/", "", '5') + member("set/1.txt", "one") +
                          member("set/1.jpg", std::string(1000, '\xff')) +
                          member("set/2.txt", "two") + member("set/2.json", "{\"n\": 2}") +
                          member("set/3.json", "{\"text\": \"three\"}") + member("set/4.jpg", "") +
                          std::string(1024, '\0');
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(texts("a.tar", tar), ElementsAre("one", "two", "three"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("left out: 2 .jpg"));
  EXPECT_THAT(error("a.tar", tar.substr(0, 2000)), HasSubstr("a damaged tar: it ends within"));
  std::string damaged = tar;
  damaged[512 + 3] = 'x';
  EXPECT_THAT(error("a.tar", damaged),
              AllOf(HasSubstr("a header has a wrong checksum at byte"), HasSubstr("a.tar")));
  EXPECT_THAT(error("a.tar", member("1.json", "[1]")), HasSubstr("1.json is no JSON object"));
}

TEST_F(RowFiles, ADirectoryOfSeveralKindsIsReadOnceByRow) {
  const auto write = [&](const char* name, std::string_view content) {
    std::filesystem::create_directories(directory_ / "set");
    write_file(directory_ / "set" / name, content);
  };
  write("a.csv", "text\nfrom csv\n");
  write("b.json", "[{\"text\": \"from json\"}]");
  write("c.jsonl", "{\"text\": \"from jsonl\"}\n");
  write("d.tar", member("1.txt", "from tar"));
  write("e.txt", "from txt");
  write("f.json", "{\"features\": 1}");
  write("g.md", "left out");
  TokenizeOptions options{
      .inputs = {directory_ / "set"}, .output = directory_ / "out", .held_out = 0};
  const Tokenizer tokenizer = make_byte_tokenizer();
  const TextFiles found = find_text_files(options.inputs);
  EXPECT_EQ(found.files.size(), 5U);
  ASSERT_EQ(found.left_out.size(), 1U);
  EXPECT_THAT(found.left_out[0], HasSubstr("left out: 1 .json, 1 .md"));
  tokenize_corpus(options, tokenizer);
  const Corpus corpus(options.output);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(corpus.train().num_tokens()));
  corpus.train().copy(0, tokens);
  std::string all = tokenizer.decode(tokens);
  EXPECT_EQ(all,
            "from csv<|endoftext|>from json<|endoftext|>from jsonl<|endoftext|>from "
            "tar<|endoftext|>from txt<|endoftext|>");
  std::vector<std::string> formats;
  for (const SourceEntry& source : corpus.manifest().sources) formats.push_back(source.format);
  EXPECT_THAT(formats, ElementsAre("csv", "json", "jsonl", "tar", "text"));
}

}  // namespace
}  // namespace atl::data
