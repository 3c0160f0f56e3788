// What a file to tokenize is, by its ending and its content, and what is refused.

#include "atoll/data/input_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "atoll/base/files/file.h"
#include "atoll/data/testing.h"
#include "atoll/data/text_check.h"
#include "atoll/data/tokenize.h"
#include "atoll/text/new_tokenizers.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

class InputFormats : public ::testing::Test {
 protected:
  InputFormats() {
    options_.output = directory_ / "out";
    options_.held_out = 0;
  }
  void write(const char* name, std::string_view content) {
    write_file(directory_ / name, content);
    options_.inputs = {directory_ / name};
  }
  TokenizeResult run() { return tokenize_corpus(options_, tokenizer_); }
  std::string error() {
    return error_of([&] { run(); });
  }
  // What the training split of the corpus says.
  std::string learnt() const {
    const Corpus corpus(options_.output);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(corpus.train().num_tokens()));
    corpus.train().copy(0, tokens);
    return tokenizer_.decode(tokens);
  }

  TemporaryDirectory directory_;
  TokenizeOptions options_;
  const Tokenizer tokenizer_ = make_byte_tokenizer();
};

TEST_F(InputFormats, WhatIsNoTextIsRefusedWithWhatToDo) {
  write("a.txt", "PK\x03\x04 and so on");
  EXPECT_THAT(error(), AllOf(HasSubstr("a.txt is a zip archive"), HasSubstr("unpack it")));
  write("a.avro", "Obj\x01 and so on");
  EXPECT_THAT(error(), AllOf(HasSubstr("an Avro file"), HasSubstr("JSONL")));
  for (const char* name : {"a.txt", "a.json", "a"}) {
    write(name, "{\n  \"text\": \"a\"\n}\n");
    EXPECT_THAT(error(), AllOf(HasSubstr(std::string(name) + " is JSON"), HasSubstr("jq -c '.' ")));
    write(name, "[[{\"text\": \"a\"}]]\n");
    EXPECT_THAT(error(), AllOf(HasSubstr(std::string(name) + " is JSON"), HasSubstr("'.[]'")));
  }
  write("a.json", "[1]");
  EXPECT_THAT(error_of([&] { for_each_text(options_, [](std::string_view) {}); }),
              HasSubstr("a.json is JSON"));
  write("a.json", "no JSON");
  EXPECT_EQ(error(), "");
  options_.overwrite = true;
  for (const char* text : {"{\n  int a;\n}", "[1] and so on", "{\"quoted\"} words", "[", "{",
                           "BZh is no bzip2", "ORC, a text"}) {
    write("a.txt", text);
    EXPECT_EQ(error(), "") << text;
  }
}

TEST_F(InputFormats, MarkupIsRefusedByItsEnding) {
  for (const auto& [name, what] : std::map<const char*, const char*>{{"a.html", "HTML"},
                                                                     {"a.htm", "HTML"},
                                                                     {"a.xml", "XML"},
                                                                     {"a.yaml", "YAML"},
                                                                     {"a.yml", "YAML"}}) {
    write(name, "question,answer\nwhat,the answer\n");
    EXPECT_THAT(error(),
                AllOf(HasSubstr(std::string(name) + " is " + what), HasSubstr("or call it .txt")));
    EXPECT_THAT(error_of([&] { for_each_text(options_, [](std::string_view) {}); }),
                HasSubstr(what));
  }
}

TEST_F(InputFormats, TextThatLooksLikeSomethingElseIsNamed) {
  const auto oddity = [](const char* name, std::string_view content) {
    return oddity_of_text(name, content);
  };
  EXPECT_THAT(oddity("a.txt", "\n<!DOCTYPE html><p>"), HasSubstr("a.txt is HTML"));
  EXPECT_THAT(oddity("a.txt", "<html lang=\"en\">"), HasSubstr("a.txt is HTML"));
  std::string table = "question,answer\n";
  for (int i = 0; i < 10; ++i) table += "\"what, then\",the answer\n";
  EXPECT_THAT(oddity("a.txt", table), HasSubstr("a.txt looks like a table of CSV"));
  EXPECT_THAT(oddity("a.txt", "\xEF\xBB\xBF" + table), HasSubstr("a table of CSV"));
  std::string tabs;
  for (int i = 0; i < 10; ++i) tabs += "a b\tc\td\n";
  EXPECT_THAT(oddity("a.txt", tabs), HasSubstr("a table of TSV"));
  std::string verses;
  for (int i = 0; i < 10; ++i) verses += "And the sea, it is wide\n";
  EXPECT_EQ(oddity("a.txt", verses), "");
  EXPECT_EQ(oddity("a.txt", "a,b\nc,d\n"), "");
  EXPECT_EQ(oddity("a.txt", "<p>"), "");
}

TEST_F(InputFormats, JsonLinesAreKnownByAnotherNameOrByTheirContent) {
  const std::string lines = "\xEF\xBB\xBF{\"text\": \"the answer\"}\n\n{\"text\": \"was\"}\n";
  options_.overwrite = true;
  for (const char* name : {"a.JSONL", "a.ndjson", "a.jsonlines", "a.jl", "a.json", "a.txt", "a"}) {
    write(name, lines);
    run();
    EXPECT_EQ(learnt(), "the answer<|endoftext|>was<|endoftext|>") << name;
    EXPECT_EQ(Corpus(options_.output).manifest().sources[0].format, "jsonl");
    std::string text;
    for_each_text(options_, [&](std::string_view piece) { text += piece; });
    EXPECT_EQ(text, "the answerwas");
  }
  write("a.ndjson", "{\n \"text\": \"a\"\n}\n");
  EXPECT_THAT(error(),
              AllOf(HasSubstr("a.ndjson line 1 is not JSON by itself"), HasSubstr("jq -c . ")));
  options_.as_older_programs = true;
  write("a.txt", lines);
  run();
  EXPECT_FALSE(Corpus(options_.output).manifest().frame.has_value());
  EXPECT_THAT(learnt(), HasSubstr("{\"text\": "));
}

TEST_F(InputFormats, AByteOrderMarkIsNoPartOfAText) {
  write("a.txt", "\xEF\xBB\xBFthe answer");
  std::uint64_t done = 0;
  const TokenizeResult result = tokenize_corpus(
      options_, tokenizer_, [&](const TokenizeProgress& progress) { done = progress.bytes_done; });
  EXPECT_EQ(done, 13U);
  EXPECT_EQ(result.bytes, 13U);
  EXPECT_EQ(learnt(), "the answer<|endoftext|>");
  for_each_text(options_, [](std::string_view text) { EXPECT_EQ(text, "the answer"); });
}

TEST_F(InputFormats, ADirectorySaysWhatItLeavesOut) {
  fs::create_directories(directory_ / "books/deep");
  const auto file = [&](const char* name) {
    write_file(directory_ / "books" / name, "{\"text\": \"the answer\"}\n");
  };
  for (const char* name : {"a.md", "deep/b.md", "c.html", "LICENSE", "metrics.jsonl"}) file(name);
  options_.inputs = {directory_ / "books"};
  EXPECT_THAT(error(), AllOf(HasSubstr("there is no file to read under"), HasSubstr(".parquet"),
                             HasSubstr("but 2 .md, 1 without an ending, 1 .html")));
  for (const char* name : {"d.txt", "e.NDJSON", "deep/f.jsonl", "g.TXT"}) file(name);
  const TextFiles found = find_text_files(options_.inputs);
  EXPECT_EQ(found.files.size(), 4U);
  ASSERT_EQ(found.left_out.size(), 1U);
  EXPECT_THAT(found.left_out[0],
              AllOf(HasSubstr("books"), HasSubstr("2 .md, 1 without an ending, 1 .html")));
  ::testing::internal::CaptureStderr();
  run();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("left out: 2 .md"));
}

}  // namespace
}  // namespace atl::data
