// What the program answers to commands and options that it does not have.

#include "atoll/cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "atoll/cli/commands.h"
#include "atoll/cli/foreign/foreign_commands.h"
#include "atoll/cli/setting_lists.h"
#include "atoll/train/config/config.h"

namespace atl::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using Words = std::vector<std::string>;

// The line on standard error; the exit code must be that of a user's mistake.
std::string answer(const Words& words) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_program(words);
  testing::internal::GetCapturedStdout();
  std::string err = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 2) << err;
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  return err;
}

std::string printed(const Words& words) {
  testing::internal::CaptureStdout();
  const int code = run_program(words);
  EXPECT_EQ(code, 0);
  return testing::internal::GetCapturedStdout();
}

TEST(Program, ACommandOfAnotherProgramIsAnsweredWithOurs) {
  const std::pair<const char*, const char*> verbs[] = {
      {"llama-server", "did you mean `atoll serve"},
      {"talk", "`atoll chat MODEL`"},
      {"chat_cli", "`atoll generate MODEL --chat"},
      {"run", "`atoll generate MODEL --prompt TEXT` runs a model"},
      {"download", "`atoll get ORG/NAME`"},
      {"login", "HF_TOKEN"},
      {"push", "atoll uploads nothing"},
      {"convert", "`atoll import FILE.gguf"},
      {"convert_hf_to_gguf.py", "--out FILE.gguf"},
      {"quantize", "--gguf Q4_K_M"},
      {"finetune", "--model.from=MODEL"},
      {"lora", "--lora.rank=8"},
      {"merge-lora", "`atoll export RUN --merge"},
      {"base_train", "did you mean `atoll train RECIPE.toml`?"},
      {"resume", "`atoll tune resume DIRECTORY`"},
      {"list", "`atoll runs list`"},
      {"ls", "`atoll runs list`"},
      {"ps", "`atoll runs list`"},
      {"rm", "`rm -r`"},
      {"torchrun", "`atoll train RECIPE.toml -n N`"},
      {"lm_eval", "did you mean `atoll eval MODEL`?"},
      {"perplexity", "did you mean `atoll eval MODEL`?"},
      {"sweep", "recipes/kjv-study.toml"},
      {"preprocess", "`atoll tokenize"},
      {"dashboard", "did you mean `atoll watch`?"},
      {"settings", "`atoll config [WORD]`"},
      {"inspect", "`atoll doctor DIRECTORY`"},
      {"tokenise", "did you mean `atoll tokenize`?"},
      {"frobnicate", "`atoll help` lists them"},
  };
  for (const auto& [verb, advice] : verbs) {
    EXPECT_THAT(
        answer({verb, "x"}),
        AllOf(StartsWith(std::string("error: unknown command ") + verb + "; "), HasSubstr(advice)));
  }
  for (const Command& command : commands()) {
    EXPECT_THAT(foreign_command_advice(command.name), IsEmpty()) << command.name;
  }
}

TEST(Program, WhatStandsBeforeACommandIsTold) {
  EXPECT_EQ(answer({"recipes/kjv-demo.toml", "-n", "2"}),
            "error: recipes/kjv-demo.toml is no command; did you mean `atoll train "
            "recipes/kjv-demo.toml`?\n");
  EXPECT_EQ(answer({"--train.steps=5", "train"}),
            "error: --train.steps=5 comes before any command; write `atoll COMMAND "
            "--train.steps=5 ...`\n");
}

TEST(Program, AFlagOfAnotherProgramIsAnsweredWithWhatItMeans) {
  const std::vector<std::pair<Words, const char*>> mistakes = {
      {{"train", "r.toml", "--num_train_epochs=3"}, "did you mean --train.epochs"},
      {{"train", "r.toml", "epochs=3"}, "settings are written --train.epochs=3"},
      {{"train", "r.toml", "bf16=true"}, "settings are written --train.dtype=bf16"},
      {{"train", "r.toml", "--bf16"}, "did you mean --train.dtype=bf16?"},
      {{"train", "r.toml", "--fp16"}, "did you mean --train.dtype=bf16?"},
      {{"train", "r.toml", "--device=cpu"}, "did you mean --device.kind=cpu?"},
      {{"train", "--device", "cuda"}, "did you mean --device.kind"},
      {{"train", "r.toml", "--device=gpu"}, "did you mean --device.kind=cuda?"},
      {{"train", "r.toml", "--gpu"}, "did you mean --device.kind=cuda?"},
      {{"train", "--device.kind=gpu"}, "did you mean cuda?"},
      {{"train", "r.toml", "--model", "gpt2"}, "did you mean --model.from?"},
      {{"train", "r.toml", "--data=x"}, "did you mean --data.text?"},
      {{"train", "r.toml", "--lora"}, "did you mean --lora.rank?"},
      {{"train", "r.toml", "--lora_dropout=0.1"}, "did you mean --lora.dropout"},
      {{"train", "r.toml", "--load_in_4bit"}, "training keeps all weights as f32 or bf16"},
      {{"train", "r.toml", "--compile"}, "atoll compiles nothing"},
      {{"train", "r.toml", "-b", "8"}, "did you mean --train.batch_size?"},
      {{"train", "r.toml", "--gradient_checkpointing"}, "did you mean --train.recompute=full?"},
      {{"train", "r.toml", "--deepspeed=ds.json"}, "dp.zero says what"},
      {{"train", "r.toml", "--push_to_hub"}, "atoll uploads nothing"},
      {{"train", "r.toml", "--port=7412"}, "did you mean --watch-at=HOST:PORT?"},
      {{"generate", "x", "--stop", "END"}, "no other text stops it"},
      {{"generate", "x", "--repetition-penalty=1.1"}, "there are no penalties"},
      {{"generate", "x", "--repeat_penalty=1.1"}, "there are no penalties"},
      {{"generate", "x", "--min-p=0.1"}, "--top-k and --top-p say how tokens are drawn"},
      {{"generate", "x", "--load_in_4bit"}, "did you mean --weights=int8"},
      {{"generate", "x", "--stream"}, "text is written as it comes"},
      {{"generate", "x", "-b", "4"}, "one text is written at a time"},
      {{"generate", "x", "--port=80"}, "`atoll serve"},
      {{"serve", "x", "--tls-cert=a"}, "did you mean --certificate?"},
      {{"serve", "x", "--max-model-len", "5"}, "did you mean --context?"},
      {{"eval", "x", "-b", "4"}, "did you mean --micro-batch?"},
      {{"watch", "--port", "8080"}, "--listen=127.0.0.1:PORT"},
      {{"watch", "--host=0.0.0.0"}, "did you mean --listen=HOST:PORT?"},
      {{"watch", "--logdir=runs"}, "directories are arguments"},
      {{"tune", "s.toml", "--n_trials=5"}, "did you mean --budget.trials?"},
      {{"tune", "s.toml", "--n-jobs=2"}, "did you mean --study.workers?"},
      {{"server", "--port=7000"}, "it is part of HOST:PORT"},
  };
  for (const auto& [words, advice] : mistakes) EXPECT_THAT(answer(words), HasSubstr(advice));
}

TEST(Program, AWordOfAnotherProgramIsAnsweredWithOurs) {
  const std::vector<std::pair<Words, const char*>> mistakes = {
      {{"generate", "x", "--device=gpu"},
       "--device is gpu; it must be one of cpu, cuda, auto, fake_cuda; did you mean cuda?"},
      {{"export", "x", "--out", "y", "--dtype=float16"}, "did you mean f16?"},
      {{"export", "x", "--out", "y", "--dtype=q4km"}, "did you mean q4_k_m?"},
      {{"generate", "x", "--weights=8bit"}, "did you mean int8?"},
      {{"runs", "ls"}, "did you mean list?"},
      {{"runs", "exprot"}, "did you mean export?"},
      {{"certs", "renew", "x"}, "did you mean issue?"},
      {{"train", "r.toml", "-n", "2.5"}, "-n is 2.5, and a whole number is wanted"},
      {{"train", "r.toml", "-n", "two"}, "-n is two, and a number is wanted"},
      {{"tune", "list"}, "there is no study file list, and `atoll tune` has no part of that name"},
      {{"tune", "start", "s.toml"}, "or a part: resume, show, best"},
      {{"tune"}, "recipes/kjv-study.toml is one"},
  };
  for (const auto& [words, advice] : mistakes) EXPECT_THAT(answer(words), HasSubstr(advice));
}

TEST(Program, HelpListsEveryCommandAndTheSettingsThatMatter) {
  const std::string overview = printed({"help"});
  for (const Command& command : commands()) {
    EXPECT_THAT(overview, HasSubstr(std::string("\n  ") + command.name + " "));
  }
  const std::vector<std::string> keys = usual_setting_keys();
  EXPECT_EQ(keys.size(), 20u);
  for (const char* command : {"train", "launch", "plan"}) {
    const std::string help = printed({command, "--help"});
    EXPECT_THAT(help, HasSubstr("`atoll config WORD` finds the others"));
    for (const std::string& key : keys) EXPECT_THAT(help, HasSubstr("\n  --" + key + "=")) << key;
    EXPECT_THAT(help, Not(HasSubstr("device.fake")));
  }
  const std::string reference = printed({"config-reference"});
  const std::string top = reference.substr(0, reference.find("\n## "));
  for (const std::string& key : keys) EXPECT_THAT(top, HasSubstr("\n| `" + key + "` | "));
  EXPECT_THAT(printed({"eval", "--help"}), Not(HasSubstr("--train.steps=")));
  EXPECT_EQ(printed({"train", "help"}), printed({"train", "--help"}));
}

TEST(Program, ConfigFindsSettings) {
  EXPECT_THAT(printed({"config", "warmup"}),
              HasSubstr("optim.warmup_steps = 0\n    an integer, at least 0. Steps of"));
  EXPECT_THAT(printed({"config", "WARMUP"}), HasSubstr("optim.warmup_steps = 0\n"));
  EXPECT_THAT(printed({"config", "learning", "rate"}),
              AllOf(HasSubstr("optim.lr = "), Not(HasSubstr("train.context = "))));
  EXPECT_THAT(printed({"config", "gradient_accumulation_steps"}),
              StartsWith("train.micro_batch = "));
  EXPECT_THAT(printed({"config", "study.dir"}), StartsWith("study.dir = "));
  EXPECT_THAT(printed({"config", "device.fake"}), HasSubstr("device.fake_order = 0\n"));
  EXPECT_THAT(printed({"config", "compress_rank"}),
              HasSubstr("The rank of the factors. Only with dp.compress powersgd.\n"));
  EXPECT_THAT(printed({"config", "num_epochs"}), StartsWith("train.epochs = "));
  EXPECT_THAT(answer({"config", "frobnicate"}), HasSubstr("`atoll config` lists all"));
  const std::string all = printed({"config"});
  train::TrainConfig config;
  const Settings settings = train::make_settings(config);
  for (const Setting& setting : settings.all()) {
    EXPECT_THAT(all, HasSubstr(setting.key + " ")) << setting.key;
  }
  EXPECT_THAT(all, HasSubstr("study.recipe "));
}

TEST(Program, SearchedSettingsKeepToTheColumns) {
  const std::string found = find_settings({"a"}, 60);
  for (std::size_t begin = 0; begin < found.size();) {
    const std::size_t end = found.find('\n', begin);
    const std::string line = found.substr(begin, end - begin);
    // A default may be longer, and stands in a line of its own.
    if (line.starts_with(' ')) {
      EXPECT_LE(line.size(), 60u) << line;
    }
    begin = end + 1;
  }
}

}  // namespace
}  // namespace atl::cli
