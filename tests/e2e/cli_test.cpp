// The program from outside: exit codes, one-line errors, help.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/cli/commands.h"
#include "program.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(Cli, HelpListsEveryCommandAndEachHelpHasAnExample) {
  const Finished help = atoll({"help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const cli::Command& command : cli::commands()) {
    EXPECT_THAT(help.out, HasSubstr(fmt::format("\n  {} ", command.name)));
    const Finished own = atoll({command.name, "--help"});
    EXPECT_EQ(own.exit_code, 0) << own.err;
    EXPECT_THAT(own.out, HasSubstr(fmt::format("Example:\n  atoll {}", command.name)));
  }
  EXPECT_EQ(atoll({}).out, help.out);
  EXPECT_EQ(atoll({"--help"}).out, help.out);
  EXPECT_EQ(atoll({"help", "train"}).out, atoll({"train", "--help"}).out);
}

TEST(Cli, VersionIsOneLine) {
  const Finished version = atoll({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, StartsWith("atoll "));
  EXPECT_THAT(version.err, IsEmpty());
}

TEST(Cli, AMisspeltCommandOrOptionIsAnsweredWithTheNearest) {
  const Finished command = atoll({"tokenise", "x"});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_EQ(error_line(command), "error: unknown command tokenise; did you mean `atoll tokenize`?");
  EXPECT_EQ(error_line(atoll({"tokenize", "a.txt", "--hold-out", "0.1"})),
            "error: unknown option --hold-out; did you mean --held-out?");
  EXPECT_EQ(error_line(atoll({"plan", "--steps=3"})),
            "error: unknown option --steps; did you mean --train.steps?");
  EXPECT_EQ(error_line(atoll({"plan", "--train.lr=3"})),
            "error: unknown key --train.lr; did you mean --optim.lr?");
  EXPECT_EQ(error_line(atoll({"doctor", ".", "more"})),
            "error: unexpected argument more; see `atoll doctor --help`");
  EXPECT_EQ(error_line(atoll({"doctor", "--train.steps", "3"})),
            "error: `atoll doctor` reads no recipe, so it takes no --train.steps=3");
}

TEST(Cli, TheUsersMistakesExitWithTwo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"train", "no/such.toml"},
                                             {"train"},
                                             {"plan", "--train.steps"},
                                             {"tokenize", "no/such.txt", "--out", "x"},
                                             {"tokenize"},
                                             {"doctor", "no/such/directory"}}) {
    const Finished finished = atoll(arguments);
    EXPECT_EQ(finished.exit_code, 2) << arguments[0];
    error_line(finished);
  }
}

TEST(Cli, AFullDiskIsAFailureNotABug) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const Finished finished = atoll({"config-reference"}, "/dev/full");
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(error_line(finished), EndsWith("No space left on device"));
}

TEST(Cli, TokenizeMakesACorpusThatDoctorVerifies) {
  const TemporaryDirectory directory;
  const std::string text = (directory.path / "text.txt").string();
  const std::string corpus = (directory.path / "corpus").string();
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += fmt::format("line {} of a text to read\n", i);
  write_file(text, lines);
  const Finished made = atoll({"tokenize", text, "--out", corpus, "--vocab-size", "300"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("training tokens"));

  const Finished whole = atoll({"doctor", corpus});
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("vocabulary 300: whole"));

  for (const fs::directory_entry& entry : fs::directory_iterator(corpus)) {
    if (entry.path().extension() == ".json") continue;
    std::string bytes = read_file(entry.path());
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_file(entry.path(), bytes);
    break;
  }
  const Finished damaged = atoll({"doctor", corpus});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(error_line(damaged), HasSubstr(corpus));
}

TEST(Cli, DoctorNamesTheMachine) {
  const Finished finished = atoll({"doctor"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  for (const char* row : {"CPU ", "memory ", "disk here ", "GPU ", "oneDNN ", "atoll "}) {
    EXPECT_THAT(finished.out, HasSubstr(row));
  }
}

TEST(Cli, TheConfigurationPageIsWhatTheProgramWrites) {
  const Finished finished = atoll({"config-reference"});
  EXPECT_EQ(finished.out, read_file(test_source_dir() / "docs/configuration.md"))
      << "atoll config-reference > docs/configuration.md";
}

TEST(Cli, EveryCommandHasASectionInTheDocumentation) {
  const std::string page = read_file(test_source_dir() / "docs/commands.md");
  for (const cli::Command& command : cli::commands()) {
    EXPECT_THAT(page, HasSubstr(fmt::format("\n## {}\n", command.name)));
  }
}

TEST(Cli, APlanKnowsTheVocabularyOfATokenizerThatIsNotTrained) {
  const TemporaryDirectory directory;
  const fs::path text = directory.path / "text.txt";
  write_file(text, "abba\n");
  for (const auto& [kind, size] : {std::pair{"byte", "257"}, std::pair{"char", "3"}}) {
    const Finished plan = atoll({"plan", "--data.text=" + text.string(), "--run.dir=never-made",
                                 std::string("--data.new_tokenizer=") + kind});
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    EXPECT_THAT(plan.out, HasSubstr(fmt::format("{} (data.new_tokenizer = {})", size, kind)));
  }
}

TEST(Cli, APlanOfAnIslandHasWhatItExchanges) {
  const TemporaryDirectory directory;
  const fs::path text = directory.path / "text.txt";
  write_file(text, "abba\n");
  const std::vector<std::string> words = {"plan", "--data.text=" + text.string(),
                                          "--run.dir=never-made", "--data.new_tokenizer=byte"};
  EXPECT_THAT(atoll(words).out, Not(HasSubstr("as an island")));
  std::vector<std::string> islands = words;
  islands.insert(islands.end(), {"--outer.islands=4", "--outer.codec=topk"});
  const Finished plan = atoll(islands);
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("beside that as an island"), HasSubstr("anchor"),
                              HasSubstr("exchange"), HasSubstr("error feedback")));
}

TEST(Cli, BenchStepNamesEachOpAndItsPartOfTheMachine) {
  const Finished bench =
      atoll({"bench", "step", (test_source_dir() / "recipes/kjv-demo.toml").string(),
             "--model.hidden_size=32", "--model.num_hidden_layers=1",
             "--model.intermediate_size=64", "--data.vocab_size=300", "--train.batch_size=2",
             "--train.micro_batch=1", "--train.context=32", "--steps=2"});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_THAT(bench.out, AllOf(HasSubstr("matmul_nt"), HasSubstr("attention_backward"),
                               HasSubstr("linear_cross_entropy"), HasSubstr("% MFU"),
                               HasSubstr("waiting for samples"), HasSubstr("between ops")));
}

TEST(Cli, EveryRecipeInTheTreePlans) {
  for (const fs::directory_entry& entry : fs::directory_iterator(test_source_dir() / "recipes")) {
    const std::string text = read_file(entry.path());
    if (entry.path().extension() != ".toml" || text.find("\n[study]\n") != std::string::npos) {
      continue;
    }
    std::vector<std::string> words = {"plan", entry.path().string()};
    // `atoll rl` learns from answers, without text.
    if (text.find("\n[rl]\n") == std::string::npos) {
      words.push_back("--data.text=" + (test_source_dir() / "README.md").string());
    }
    const Finished finished = atoll(words);
    const std::regex from("\nfrom = \"([^\"]+)\"");
    if (std::smatch base; std::regex_search(text, base, from)) {
      // A fine-tune of a model that its page says how to get: all else must be right.
      EXPECT_EQ(finished.exit_code, 2) << entry.path();
      EXPECT_THAT(finished.err, HasSubstr("there is no directory " + base[1].str()));
      continue;
    }
    EXPECT_EQ(finished.exit_code, 0) << entry.path() << finished.err;
    EXPECT_THAT(finished.out, HasSubstr(entry.path().string() + ":"));
  }
}

}  // namespace
}  // namespace atl
