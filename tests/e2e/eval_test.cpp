// `atoll eval --task` from outside: a trained model answers, and mistakes are named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/model_dir/sentence_piece_testing.h"
#include "train_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Train;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class EvalTask : public Train {
 protected:
  std::string file(const std::string& name, const std::string& content) const {
    write_file(path(name), content);
    return path(name);
  }
  Finished eval(const std::string& task, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"eval", path("run"), "--task", task};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return atoll(arguments);
  }
  std::string refused(const std::string& task, const std::vector<std::string>& more = {}) const {
    const Finished finished = eval(task, more);
    EXPECT_EQ(finished.exit_code, 2);
    return error_line(finished);
  }
};

// The text of these tests has words of the fixture's list in any order, and no others.
constexpr const char* kChoices =
    "{\"prompt\": \"the sea is\", \"choices\": [\" xqzj\", \" wide\"], \"answer\": 1}\n"
    "{\"prompt\": \"a ring of \", \"choices\": [\"islands\", \"zzzz\"], \"answer\": \"islands\"}\n"
    "{\"prompt\": \"there lies\", \"choices\": [\" the\", \" QQ!\"], \"answer\": 1}\n";

// The run's own evaluation, and that of its checkpoint, are of the same windows.
TEST_F(Train, EvalCutsTheTextAsTheRunDid) {
  const Finished run = trained("run", {"--data.documents=blank-line", "--data.packing=documents",
                                       "--model.max_position_embeddings=64"});
  const std::string loss = run.out.substr(run.out.find("held-out loss ") + 14, 6);
  const auto eval = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"eval", path("run")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = atoll(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return finished.out;
  };
  EXPECT_THAT(eval({}), HasSubstr(loss + " nats a token"));
  EXPECT_THAT(eval({"--context", "32", "--packing", "documents"}), HasSubstr(loss));
  EXPECT_THAT(eval({"--context", "0"}), Not(HasSubstr(loss)));
  EXPECT_THAT(eval({"--context", "16"}), Not(HasSubstr(loss)));
}

TEST_F(Train, ExportOfATokenizerModelIsReadByTransformersAsTheRunReadIt) {
  const std::string model = model_dir::tiny_sentence_piece();
  write_file(path("tokenizer.model"), model);
  const Finished run =
      atoll({"train", "--run.dir=" + path("run"), "--data.text=" + path("text.txt"),
             "--data.tokenizer=" + path("tokenizer.model"), "--model.hidden_size=32",
             "--model.num_hidden_layers=1", "--train.steps=2", "--train.batch_size=2",
             "--train.micro_batch=2", "--train.context=32"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Finished exported = atoll({"export", path("run"), "--out", path("hf")});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.err, IsEmpty());
  EXPECT_EQ(read_file(path("hf/tokenizer.model")), model);
  EXPECT_THAT(read_file(path("hf/tokenizer.json")), HasSubstr("TemplateProcessing"));
  EXPECT_THAT(read_file(path("hf/tokenizer_config.json")), HasSubstr("PreTrainedTokenizerFast"));
  EXPECT_EQ(atoll({"export", path("run"), "--out", path("m.gguf"), "--format", "gguf"}).exit_code,
            0);
}

TEST_F(EvalTask, AModelThatHasLearntChoosesAndWrites) {
  trained("run");
  const std::string choices = file("choices.jsonl", kChoices);
  const Finished chosen = eval(choices, {"--out", path("chosen.jsonl")});
  ASSERT_EQ(chosen.exit_code, 0) << chosen.err;
  EXPECT_THAT(chosen.err, IsEmpty());
  EXPECT_THAT(chosen.out, AllOf(HasSubstr("acc            0.6667 ± 0.3333  (2 of 3)\n"),
                                HasSubstr("acc_norm       "), HasSubstr("items          3 in "),
                                Not(HasSubstr("exact_match"))));
  const std::string lines = read_file(path("chosen.jsonl"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  EXPECT_THAT(lines, AllOf(StartsWith("{\"line\":1,\"type\":\"multiple_choice\""),
                           HasSubstr("\"output\":\"islands\"")));

  // What greedy generation writes is the answer; the words "or not" are in no text.
  const std::string greedy = generated("run", {"--greedy"}).substr(std::string("the sea").size());
  const std::string written = greedy.substr(0, greedy.find('\n'));
  const std::size_t space = written.find(' ', 3);
  ASSERT_NE(space, std::string::npos) << written;
  // Words are tokens that begin with their space: this stop ends in another token than it begins.
  const std::string stop = written.substr(space - 1, 2);
  const std::string write = file(
      "write.jsonl", fmt::format("{{\"prompt\": \"the sea\", \"answer\": \"{}\"}}\n"
                                 "{{\"prompt\": \"the sea\", \"answers\": [\"or\", \"not\"]}}\n",
                                 written.substr(0, written.find(stop))));
  const Finished wrote = eval(write, {"--max-tokens", "20", "--stop", stop, "--stop", "\n"});
  ASSERT_EQ(wrote.exit_code, 0) << wrote.err;
  EXPECT_THAT(wrote.out, HasSubstr("exact_match    0.5000 ± 0.5000  (1 of 2)\n"));
  EXPECT_THAT(eval(write, {"--max-tokens", "20", "--limit", "1", "--extract", "^(..)"}).out,
              HasSubstr("exact_match    1.0000  (1 of 1)\n"));
}

TEST_F(EvalTask, MistakesAreNamedBeforeAnythingRuns) {
  trained("run", {"--train.steps=2"});
  const std::string choices = file("choices.jsonl", kChoices);
  EXPECT_THAT(refused(file("bad.jsonl", std::string(kChoices) + "{\"prompt\": \"p\"}")),
              AllOf(HasSubstr("bad.jsonl line 4 "), HasSubstr("\"answer\"")));
  EXPECT_THAT(refused(path("none.jsonl")), HasSubstr("none.jsonl"));
  EXPECT_THAT(refused(choices, {"--extract", "("}), HasSubstr("--extract: "));
  EXPECT_THAT(refused(choices, {"--stop", "."}), HasSubstr("--stop is for answers"));
  EXPECT_THAT(refused(choices, {"--out", choices}), HasSubstr("is there already"));
  EXPECT_THAT(refused(choices, {"--chat"}), HasSubstr("chat_template"));
  EXPECT_EQ(eval(choices, {"--text", path("text.txt")}).exit_code, 2);
  EXPECT_EQ(atoll({"eval", path("run"), "--limit", "3"}).exit_code, 2) << "without a task";
}

TEST_F(EvalTask, PromptsBeyondTheContextAreNamedOrTruncated) {
  trained("run", {"--train.steps=2"});
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += "the sea is wide and ";
  const std::string task =
      file("long.jsonl", std::string(kChoices) + "{\"prompt\": \"" + prompt +
                             "\", \"choices\": [\"a\", \"the\"], \"answer\": 0}\n");
  EXPECT_THAT(refused(task), AllOf(HasSubstr("long.jsonl line 4: "), HasSubstr("32"),
                                   HasSubstr("--truncate-left")));
  const Finished cut = eval(task, {"--truncate-left", "--out", path("cut.jsonl")});
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_THAT(cut.out, HasSubstr("truncated      1 of the prompts, by --truncate-left\n"));
  EXPECT_THAT(read_file(path("cut.jsonl")), HasSubstr("\"dropped_tokens\":"));
  EXPECT_THAT(refused(file("write.jsonl", "{\"prompt\": \"the sea\", \"answer\": \"is\"}"),
                      {"--max-tokens", "40", "--truncate-left"}),
              HasSubstr("write.jsonl line 1: "));
}

}  // namespace
}  // namespace atl
