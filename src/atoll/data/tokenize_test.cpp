#include "atoll/data/tokenize.h"
#include "atoll/base/files/test_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>

#include "atoll/base/files/file.h"
#include "atoll/base/files/lock.h"
#include "atoll/data/testing.h"
#include "atoll/text/bpe_trainer.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

// Lines that are all different, so that a piece of text is found in one place only.
std::string verses(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("{} And it came to pass in the day {}, that he said.\n", i, i * i);
  }
  return text;
}

const Tokenizer& tokenizer() {
  static const Tokenizer trained = [] {
    const std::string text = verses(200);
    const std::string_view view = text;
    BpeTrainerOptions options;
    options.vocab_size = 320;
    return train_bpe(std::span(&view, 1), options);
  }();
  return trained;
}

std::vector<std::int32_t> all_tokens(const TokenSource& source) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.num_tokens()));
  source.copy(0, tokens);
  return tokens;
}

// The documents of a split as text, checked to end with the end-of-text token and hold no other.
std::vector<std::string> documents(const TokenSplit& split) {
  const std::vector<std::int32_t> tokens = all_tokens(split);
  std::vector<std::int64_t> ends = split.document_starts();
  EXPECT_TRUE(ends.empty() || ends.front() == 0);
  ends.push_back(split.num_tokens());
  std::vector<std::string> texts;
  for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
    const std::span document = std::span(tokens).subspan(
        static_cast<std::size_t>(ends[i]), static_cast<std::size_t>(ends[i + 1] - ends[i]));
    EXPECT_EQ(std::count(document.begin(), document.end(), *tokenizer().end_of_text()), 1);
    EXPECT_EQ(document.back(), *tokenizer().end_of_text());
    texts.push_back(tokenizer().decode(document.first(document.size() - 1)));
  }
  return texts;
}

class TokenizeCorpus : public ::testing::Test {
 protected:
  TokenizeCorpus() {
    write_file(directory_ / "a.txt", verses(300));
    options_.inputs = {directory_ / "a.txt"};
    options_.output = directory_ / "out";
    options_.block_bytes = 500;
  }
  ~TokenizeCorpus() override { io_fault::disarm(); }

  TokenizeResult run() { return tokenize_corpus(options_, tokenizer()); }
  std::string error() {
    return error_of([&] { run(); });
  }

  TemporaryDirectory directory_;
  TokenizeOptions options_;
};

TEST_F(TokenizeCorpus, SplitsAreDisjointAndTogetherTheWholeText) {
  options_.held_out = 0.1;
  const TokenizeResult result = run();
  const Corpus corpus(options_.output);
  const std::string text = verses(300);
  std::size_t found_bytes = 0;
  double held_out_bytes = 0;
  std::vector<bool> covered(text.size(), false);
  for (const TokenSplit* split : {&corpus.train(), &corpus.held_out()}) {
    for (const std::string& document : documents(*split)) {
      const std::size_t place = text.find(document);
      ASSERT_NE(place, std::string::npos);
      ASSERT_EQ(text.find(document, place + 1), std::string::npos);
      for (std::size_t i = place; i < place + document.size(); ++i) {
        ASSERT_FALSE(covered[i]);
        covered[i] = true;
      }
      found_bytes += document.size();
      if (split == &corpus.held_out()) held_out_bytes += static_cast<double>(document.size());
    }
  }
  EXPECT_EQ(found_bytes, text.size());
  EXPECT_NEAR(held_out_bytes, 0.1 * static_cast<double>(text.size()), 250);
  EXPECT_EQ(result.bytes, text.size());
  EXPECT_EQ(result.train_tokens, corpus.train().num_tokens());
  EXPECT_EQ(result.held_out_tokens, corpus.held_out().num_tokens());
  EXPECT_EQ(result.held_out_documents,
            static_cast<std::int64_t>(corpus.held_out().document_starts().size()));
  EXPECT_GT(result.held_out_documents, 2);
}

TEST_F(TokenizeCorpus, CutsBetweenBlocksGiveTheTokensOfTheWholeText) {
  options_.held_out = 0;
  run();
  std::vector<std::int32_t> whole = tokenizer().encode(verses(300));
  whole.push_back(*tokenizer().end_of_text());
  EXPECT_EQ(all_tokens(Corpus(options_.output).train()), whole);
}

TEST_F(TokenizeCorpus, CutsBetweenBlocksPutNoSpaceBeforeALine) {
  options_.held_out = 0;
  options_.block_bytes = 512;
  for (const char* file : {"llama2.json", "mistral.json"}) {
    const Tokenizer spaced = Tokenizer::load(test_source_dir() / "src/atoll/text/testdata" / file);
    options_.output = directory_ / file;
    tokenize_corpus(options_, spaced);
    ASSERT_EQ(spaced.tokens_before().size(), 1U) << "a document begins with it too";
    std::vector<std::int32_t> whole = spaced.encode(verses(300), {.add_special = true});
    whole.push_back(*spaced.end_of_text());
    EXPECT_EQ(all_tokens(Corpus(options_.output).train()), whole) << file;
  }
}

TEST_F(TokenizeCorpus, ShardSizeChangesNoTokenAndNoDocument) {
  options_.documents = DocumentMode::kBlankLine;
  write_file(directory_ / "a.txt", verses(50) + "\n\n" + verses(40) + "\n" + verses(30));
  run();
  const Corpus one(options_.output);
  for (const std::uint64_t shard_tokens : {300U, 1000U}) {
    options_.output = directory_ / fmt::format("out-{}", shard_tokens);
    options_.shard_tokens = shard_tokens;
    run();
    const Corpus many(options_.output);
    EXPECT_GT(many.manifest().shards[0].size(), 1U);
    EXPECT_EQ(many.manifest().shards[0].front().num_tokens, shard_tokens);
    EXPECT_EQ(all_tokens(many.train()), all_tokens(one.train()));
    EXPECT_EQ(all_tokens(many.held_out()), all_tokens(one.held_out()));
    EXPECT_EQ(many.train().document_starts(), one.train().document_starts());
  }
}

TEST_F(TokenizeCorpus, SameInputGivesTheSameCorpusAndOtherTextAnother) {
  run();
  const Corpus first(options_.output);
  options_.overwrite = true;
  run();
  const Corpus again(options_.output);
  EXPECT_EQ(again.hash(), first.hash());
  EXPECT_EQ(again.manifest().to_json(), first.manifest().to_json());
  write_file(directory_ / "a.txt", verses(299));
  run();
  EXPECT_NE(Corpus(options_.output).hash(), first.hash());
  std::size_t shards = 0;
  for (const auto& entry : fs::directory_iterator(options_.output)) {
    shards += entry.path().extension() == ".atsh" ? 1 : 0;
  }
  EXPECT_EQ(shards, 2U) << "shards of the corpus before are still there";
}

TEST_F(TokenizeCorpus, ReadsDirectoriesInOrderOfTheirPaths) {
  fs::create_directories(directory_ / "in/b");
  write_file(directory_ / "in/b/x.txt", "second\n");
  write_file(directory_ / "in/a.txt", "first\n");
  write_file(directory_ / "in/ignored.md", "never\n");
  options_.inputs = {directory_ / "in"};
  options_.held_out = 0;
  run();
  EXPECT_THAT(documents(Corpus(options_.output).train()),
              ::testing::ElementsAre("first\n", "second\n"));
}

TEST_F(TokenizeCorpus, TextThatSpellsASpecialTokenIsText) {
  write_file(directory_ / "a.txt", "one <|endoftext|> two");
  options_.held_out = 0;
  run();
  EXPECT_THAT(documents(Corpus(options_.output).train()),
              ::testing::ElementsAre("one <|endoftext|> two"));
}

TEST_F(TokenizeCorpus, ReportsProgressToTheLastByte) {
  TokenizeProgress last;
  int calls = 0;
  tokenize_corpus(options_, tokenizer(), [&](const TokenizeProgress& progress) {
    EXPECT_GT(progress.bytes_done, last.bytes_done);
    last = progress;
    ++calls;
  });
  EXPECT_EQ(last.bytes_done, verses(300).size());
  EXPECT_EQ(last.bytes_total, last.bytes_done);
  EXPECT_GT(calls, 10);
}

TEST_F(TokenizeCorpus, RefusesBadInputAndSaysWhatToDo) {
  options_.inputs = {directory_ / "none.txt"};
  EXPECT_THAT(error(), HasSubstr("none.txt"));
  options_.inputs = {};
  EXPECT_THAT(error(), HasSubstr("no text was given"));
  write_file(directory_ / "empty.txt", "");
  options_.inputs = {directory_ / "empty.txt"};
  EXPECT_THAT(error(), AllOf(HasSubstr("empty.txt"), HasSubstr("is empty")));
  options_.inputs = {directory_ / "a.txt", directory_ / "out/../a.txt"};
  fs::create_directory(directory_ / "out");
  EXPECT_THAT(error(), HasSubstr("given twice"));
  options_.inputs = {directory_ / "out"};
  EXPECT_THAT(error(), HasSubstr("no file to read under"));
  options_.inputs = {directory_ / "a.txt"};
  options_.held_out = 0.6;
  EXPECT_THAT(error(), HasSubstr("between 0 and 0.5"));
}

TEST_F(TokenizeCorpus, RefusesATextTooSmallForTwoSplits) {
  write_file(directory_ / "a.txt", "In the beginning.\n");
  EXPECT_THAT(error(), AllOf(HasSubstr("18 bytes"), HasSubstr("hold out 5%")));
  EXPECT_FALSE(holds_corpus(options_.output));
}

TEST_F(TokenizeCorpus, RefusesAnOutputThatIsTakenOrInUseOrCannotBeMade) {
  run();
  EXPECT_THAT(error(), HasSubstr("already holds a corpus"));
  {
    const DirectoryLock lock(options_.output, "");
    EXPECT_THAT(error(), HasSubstr("in use"));
  }
  options_.output = directory_ / "a.txt";
  EXPECT_THAT(error(), HasSubstr("cannot"));
  options_.output = "/proc/atoll";
  EXPECT_THAT(error(), HasSubstr("/proc/atoll"));
}

TEST_F(TokenizeCorpus, RefusesToReplaceACorpusOfAnotherTokenizer) {
  run();
  write_file(options_.output / "tokenizer.json", "{}");
  options_.overwrite = true;
  EXPECT_THAT(error(), HasSubstr("another tokenizer"));
}

TEST_F(TokenizeCorpus, KeepsATokenizerThatStandsWhereNoCorpusIs) {
  fs::create_directory(options_.output);
  write_file(options_.output / "tokenizer.json", "{}");
  EXPECT_THAT(error(), AllOf(HasSubstr("out/tokenizer.json"), HasSubstr("another tokenizer")));
  EXPECT_EQ(read_file(options_.output / "tokenizer.json"), "{}");
  write_file(options_.output / "tokenizer.json", tokenizer().to_json());
  EXPECT_EQ(error(), "");
}

TEST_F(TokenizeCorpus, MapsOneTextAtATime) {
  for (const char* name : {"b.txt", "c.txt", "d.txt"}) {
    write_file(directory_ / name, verses(100));
    options_.inputs.push_back(directory_ / name);
  }
  std::size_t most = 0;
  tokenize_corpus(options_, tokenizer(), [&](const TokenizeProgress&) {
    const std::string maps = read_file("/proc/self/maps");
    std::size_t mapped = 0;
    for (const fs::path& text : options_.inputs) mapped += maps.find(text) != maps.npos ? 1 : 0;
    most = std::max(most, mapped);
  });
  EXPECT_EQ(most, 1U);
}

// SQLite's way: the first, second, ... write, sync, rename fails until none is left to fail.
TEST_F(TokenizeCorpus, FailedWriteLeavesTheOldCorpusWhole) {
  options_.shard_tokens = 3000;
  run();
  const std::string before = Corpus(options_.output).manifest().to_json();
  write_file(directory_ / "a.txt", verses(200));
  options_.overwrite = true;
  using io_fault::Call;
  for (const Call call : {Call::kOpen, Call::kWrite, Call::kSync, Call::kRename}) {
    int failures = 0;
    for (int countdown = 1;; ++countdown) {
      io_fault::arm(call, countdown, ENOSPC);
      const std::string message = error();
      io_fault::disarm();
      if (message.empty()) break;
      ++failures;
      EXPECT_THAT(message, HasSubstr("No space left"));
      const std::string after = Corpus(options_.output).manifest().to_json();
      // The last sync is of the directory: the new corpus is in place then, and whole.
      ASSERT_TRUE(call == Call::kSync || after == before) << after;
      for (const auto& entry : fs::directory_iterator(options_.output)) {
        EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp-")));
      }
    }
    EXPECT_GT(failures, 2) << static_cast<int>(call);
    fs::remove_all(options_.output);
    write_file(directory_ / "a.txt", verses(300));
    run();
    write_file(directory_ / "a.txt", verses(200));
  }
}

class DamagedCorpus : public TokenizeCorpus {
 protected:
  DamagedCorpus() { run(); }
  std::string open_error() {
    return error_of([&] { const Corpus corpus(options_.output); });
  }
};

TEST_F(DamagedCorpus, NamesTheMissingOrSwappedFile) {
  const Corpus corpus(options_.output);
  const fs::path train = options_.output / corpus.manifest().shards[0][0].file;
  const fs::path held_out = options_.output / corpus.manifest().shards[1][0].file;
  fs::copy_file(held_out, train, fs::copy_options::overwrite_existing);
  EXPECT_THAT(open_error(), AllOf(HasSubstr("train-00000"), HasSubstr("is not the shard")));
  fs::remove(train);
  EXPECT_THAT(open_error(), AllOf(HasSubstr("train-00000"), HasSubstr("is missing")));
}

TEST_F(DamagedCorpus, NamesTheTokenizerThatIsAnother) {
  write_file(options_.output / "tokenizer.json", tokenizer().to_json() + " ");
  EXPECT_THAT(open_error(), HasSubstr("tokenizer.json"));
}

TEST_F(DamagedCorpus, TruncatedOrOddManifestIsAnErrorThatNamesIt) {
  const std::string good = read_file(options_.output / "corpus.json");
  for (std::size_t size = 0; size + 2 < good.size(); size += 7) {
    EXPECT_THAT(
        error_of([&] { CorpusManifest::from_json(good.substr(0, size), "corpus.json"); }),
        AllOf(HasSubstr("corpus.json: not valid JSON: line "), HasSubstr("tokenize again")));
  }
  for (const char* odd : {"[]", "{}", "3", "{\"format\": 3}", "{\"format\": \"atoll corpus\"}"}) {
    EXPECT_THAT(error_of([&] { CorpusManifest::from_json(odd, "corpus.json"); }),
                HasSubstr("corpus.json is damaged"));
  }
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_THAT(error_of([&] {
                CorpusManifest::from_json(R"({"format": "atoll corpus", "version": )" + deep + "}",
                                          "corpus.json");
              }),
              HasSubstr("nested more than 16 levels deep"));
  std::string bad = good;
  bad.replace(bad.find("train-0"), 7, "../../x");
  EXPECT_THAT(error_of([&] { CorpusManifest::from_json(bad, "corpus.json"); }),
              HasSubstr("not the name of a file"));
  bad = good;
  bad.replace(bad.find("\"version\": 1"), 12, "\"version\": 2");
  EXPECT_THAT(error_of([&] { CorpusManifest::from_json(bad, "corpus.json"); }),
              HasSubstr("version 2"));
  fs::remove(options_.output / "corpus.json");
  EXPECT_THAT(open_error(), HasSubstr("there is no corpus in"));
}

}  // namespace
}  // namespace atl::data
