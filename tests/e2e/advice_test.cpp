// Mistakes that people make, and what the program answers: each line says what to do instead.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/ckpt/checkpoint_paths.h"
#include "program.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;

// The line that a mistake is answered with.
std::string answer(const Words& words) {
  const Finished finished = atoll(words);
  EXPECT_EQ(finished.exit_code, 2) << finished.err;
  return error_line(finished);
}

TEST(Advice, AnOptionOfAnotherProgramIsAnsweredWithOurs) {
  const std::vector<std::pair<Words, const char*>> mistakes = {
      {{"train", "r.toml", "--learning-rate", "3e-4"}, "did you mean --optim.lr?"},
      {{"train", "r.toml", "--max_iters=5"}, "did you mean --train.steps?"},
      {{"train", "--train.learning_rate=1"}, "did you mean --optim.lr?"},
      {{"train", "r.toml", "--block-size=64"}, "did you mean --train.context?"},
      {{"train", "r.toml", "--n_embd=64"}, "did you mean --model.hidden_size?"},
      {{"train", "r.toml", "--output_dir", "x"}, "did you mean --run.dir?"},
      {{"train", "r.toml", "--nproc_per_node=2"}, "did you mean -n, the number of ranks?"},
      {{"train", "--config", "r.toml"}, "the recipe is an argument: `atoll train RECIPE.toml`"},
      {{"launch", "r.toml", "-n", "4"}, "did you mean --max-ranks?"},
      {{"launch", "r.toml", "--max-rank=4"}, "did you mean --max-ranks?"},
      {{"train", "r.toml", "--max-ranks=4"}, "that is an option of `atoll launch`"},
      {{"generate", "-m", "x"}, "the model is an argument: `atoll generate MODEL`"},
      {{"generate", "x", "-p", "Hello"}, "did you mean --prompt?"},
      {{"generate", "x", "--max_new_tokens=5"}, "did you mean --max-tokens?"},
      {{"generate", "x", "--temp", "1"}, "did you mean --temperature?"},
      {{"export", "x", "--outfile", "y"}, "did you mean --out?"},
  };
  for (const auto& [words, advice] : mistakes) EXPECT_THAT(answer(words), HasSubstr(advice));
}

TEST(Advice, ASettingWithoutDashesIsTold) {
  EXPECT_EQ(answer({"train", "train.steps=5"}),
            "error: train.steps=5: settings are written --train.steps=5");
  EXPECT_EQ(answer({"train", "r.toml", "lr=0.1"}),
            "error: lr=0.1: settings are written --optim.lr=0.1");
  EXPECT_THAT(answer({"train", "r.toml", "other.toml"}), HasSubstr("one recipe is all"));
}

TEST(Advice, AnArgumentThatShouldBeAnOptionIsTold) {
  EXPECT_EQ(answer({"generate", "x", "Once upon a time"}),
            "error: unexpected argument Once upon a time; the text to continue is given with "
            "--prompt");
  EXPECT_THAT(answer({"eval", "x", "book.txt"}), HasSubstr("a text is given with --text"));
  EXPECT_THAT(answer({"export", "x", "y"}), HasSubstr("given with --out"));
  EXPECT_THAT(answer({"generate", "x", std::string(500, 'y')}), HasSubstr("yyy...; the text"));
}

TEST(Advice, WhatIsNoRecipeIsTold) {
  const TemporaryDirectory directory;
  const auto with = [&](const char* name, const std::string& content) {
    const fs::path path = directory.path / name;
    write_file(path, content);
    return answer({"train", path.string()});
  };
  EXPECT_THAT(with("r.yaml", "train:\n  steps: 5\n"), HasSubstr("r.yaml is no TOML file"));
  EXPECT_THAT(with("book.txt", "In the beginning"), HasSubstr("to train on it give --data.text="));
  EXPECT_THAT(with("x.gguf", "GGUF"), HasSubstr("--model.from"));
  EXPECT_THAT(with("r.toml", std::string("\xff\xfe[\0r\0]\0", 8)),
              HasSubstr("is UTF-16 text, and atoll reads UTF-8; convert it: iconv"));
  EXPECT_THAT(answer({"train", directory.path.string()}), HasSubstr("is a directory"));
  EXPECT_THAT(answer({"train", (directory.path / "book.text").string()}),
              HasSubstr("did you mean " + (directory.path / "book.txt").string() + "?"));
}

TEST(Advice, WhatIsNoModelIsTold) {
  const TemporaryDirectory directory;
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  ::setenv("HF_HUB_CACHE", (directory.path / "hub").c_str(), 1);
  EXPECT_THAT(answer({"generate", "HuggingFaceTB/SmolLM2-135M"}),
              AllOf(HasSubstr("HF_HUB_OFFLINE is set"),
                    HasSubstr("`atoll get HuggingFaceTB/SmolLM2-135M`")));
  ::unsetenv("HF_HUB_OFFLINE");
  ::unsetenv("HF_HUB_CACHE");
  const std::string gguf = (directory.path / "x.gguf").string();
  write_file(gguf, "GGUF");
  EXPECT_THAT(answer({"generate", gguf}), HasSubstr("atoll import " + gguf + " --out x"));
  const fs::path recipe = directory.path / "r.toml";
  write_file(recipe, "");
  EXPECT_THAT(answer({"eval", recipe.string()}), HasSubstr("give the run.dir of that recipe"));
}

TEST(Advice, OfARunOfIslandsEachIsNamed) {
  const TemporaryDirectory directory;
  const fs::path islands = directory.path / "islands";
  const auto reach = [&](const char* name, std::int64_t step) {
    fs::create_directories(islands / name / "checkpoints" / ckpt::checkpoint_name(step));
  };
  fs::create_directories(islands / "island-1");
  EXPECT_THAT(answer({"generate", directory.path.string()}), HasSubstr("has a checkpoint yet"));
  reach("island-1", 20);
  reach("island-2", 20);
  reach("island-2", 40);
  EXPECT_THAT(
      answer({"generate", directory.path.string()}),
      HasSubstr(fmt::format("give one of {} (step 40), {} (step 20)",
                            (islands / "island-2").string(), (islands / "island-1").string())));
}

TEST(Advice, OnlyAGgufFileIsImported) {
  const TemporaryDirectory directory;
  const std::string out = (directory.path / "out").string();
  const auto with = [&](const char* name, const std::string& content) {
    const fs::path path = directory.path / name;
    write_file(path, content);
    return answer({"import", path.string(), "--out", out});
  };
  EXPECT_THAT(with("model.safetensors", "12345678{}"), HasSubstr("every command takes as it is"));
  EXPECT_THAT(with("pytorch_model.bin", std::string("PK\x03\x04")), HasSubstr("safetensors"));
  EXPECT_THAT(with("x.gguf", ""), HasSubstr("it is empty"));
  EXPECT_THAT(with("x.gguf", "version https://git-lfs.github.com/spec/v1"), HasSubstr("git lfs"));
  EXPECT_THAT(answer({"import", directory.path.string(), "--out", out}),
              HasSubstr("is a directory"));
  EXPECT_THAT(answer({"import", "no/such.gguf", "--out", out}), HasSubstr("there is no file"));
  EXPECT_FALSE(fs::exists(out));
}

TEST(Advice, WhatStandsInADirectoryOfModelsIsNamed) {
  const TemporaryDirectory directory;
  fs::create_directories(directory.path / "first" / "checkpoints");
  const std::string first = "; in it there is " + (directory.path / "first").string();
  EXPECT_THAT(answer({"generate", directory.path.string()}), HasSubstr(first));
  EXPECT_THAT(answer({"doctor", directory.path.string()}), HasSubstr(first));
}

TEST(Advice, ValuesOfOptionsAreToldInPlainWords) {
  const std::vector<std::pair<Words, const char*>> mistakes = {
      {{"generate", "x", "--prompt"}, "--prompt has no value; write --prompt TEXT;"},
      {{"train", "r.toml", "-n", "two"}, "-n is two, and a number is wanted;"},
      {{"generate"}, "the argument model is missing;"},
      {{"export", "x"}, "--out is missing;"},
      {{"tokenize", "x", "--out", "y", "--held-out=0.9"}, "it must be from 0 to 0.5;"},
      {{"export", "x", "--out", "y", "--dtype=f64"}, "--dtype is f64; it must be one of f32,"},
      {{"eval", "x", "--task=a", "--text=b"}, "--text and --task cannot both be given;"},
      {{"eval", "x", "--out=a"}, "--out means nothing without --task;"},
      {{"train", "r.toml", "--train=5"},
       "train is a group of keys, not a key; it has train.objective, train.steps"},
      {{"train", "r.toml", "--islands=0"}, "--islands=0: at least 1"},
      {{"launch", "r.toml"}, "how many ranks? say --max-ranks=N"},
      {{"launch", "--join=beta", "--slots=1"}, "--join=beta: give HOST:PORT"},
      {{"bench"}, "what is to be measured?"},
      {{"bench", "nothing"}, "what can be measured are step,"},
      {{"runs", "show", "no-such"}, "there is no directory no-such"},
      {{"doctor", "no-such"}, "there is no directory no-such"},
  };
  for (const auto& [words, advice] : mistakes) EXPECT_THAT(answer(words), HasSubstr(advice));
}

TEST(Advice, AFileWhereADirectoryShouldBeIsTheUsersMistake) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path / "file").string();
  write_file(file, "");
  EXPECT_THAT(answer({"certs", "init", file}), HasSubstr("Not a directory"));
  EXPECT_THAT(answer({"coordinator", "--dir", file}), HasSubstr("is a file; give a directory"));
}

TEST(Advice, TextInUtf16IsRefusedBeforeAnythingIsMade) {
  const TemporaryDirectory directory;
  const std::string corpus = (directory.path / "corpus").string();
  for (const char* name : {"a.txt", "a.jsonl"}) {
    const std::string path = (directory.path / name).string();
    write_file(path, "\xff\xfe" + std::string("I\0n\0\n\0", 6));
    EXPECT_THAT(answer({"tokenize", path, "--out", corpus}),
                HasSubstr(path + " is UTF-16 text, and atoll reads UTF-8; convert it: iconv"));
    EXPECT_FALSE(fs::exists(corpus));
  }
}

}  // namespace
}  // namespace atl
