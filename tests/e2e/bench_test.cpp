// `atoll bench` from outside, on sizes that take no time: what is measured, and what is refused.

#include <cstddef>

#include "program.h"

namespace atl::e2e {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  return arguments;
}

void expect_error(const std::vector<std::string>& arguments, const std::string& part) {
  const Finished finished = atoll(bench(arguments));
  EXPECT_EQ(finished.exit_code, 2) << part;
  EXPECT_THAT(error_line(finished), HasSubstr(part));
}

TEST(Bench, OpsStandBesideWhatTheMachineCanDo) {
  const Finished finished = atoll(bench({"ops", "--model=demo", "--tokens=32", "--context=16",
                                         "--filter=mlp_up", "--seconds=0", "--threads=2"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("demo in f32, 2 x 16 tokens"), HasSubstr("mlp_up/forward"),
                    HasSubstr("mlp_up/weight_gradient"), HasSubstr("GFLOP/s"),
                    HasSubstr("multiply-adds on registers"), Not(HasSubstr("qkv"))));
}

TEST(Bench, OpsInBf16AsALineForPrograms) {
  const Finished finished =
      atoll(bench({"ops", "--model=demo", "--tokens=16", "--context=16", "--filter=generate/rows:1",
                   "--seconds=0", "--threads=1", "--dtype=bf16", "--json"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, StartsWith(R"([{"what":"generate/rows:1","value":)"));
  EXPECT_THAT(finished.out, HasSubstr(R"("limit_is":"reading as many bytes","percent":)"));
}

TEST(Bench, TokenizersAreMeasuredOnAMadeUpTextOrOnAFile) {
  const Finished made =
      atoll(bench({"tokenizer", "--megabytes=1", "--rounds=1", "--vocab-size=600"}));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out,
              AllOf(HasSubstr("1.0 MB of made-up text, a vocabulary of 600"), HasSubstr("MB/s"),
                    HasSubstr("learn a vocabulary"), HasSubstr("cutting into words alone")));
  const Finished file =
      atoll(bench({"tokenizer", "--text=" + (test_source_dir() / "README.md").string(),
                   "--rounds=1", "--vocab-size=300", "--json"}));
  ASSERT_EQ(file.exit_code, 0) << file.err;
  EXPECT_THAT(file.out, StartsWith(R"([{"what":"encode, 64 KiB")"));
}

TEST(Bench, GenerationInEachKindOfWeightsStandsBesideReadingThem) {
  const Finished finished = atoll(
      bench({"generate", "--model=demo", "--tokens=4", "--prompt=2", "--rounds=1", "--threads=2"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("f32 weights"), HasSubstr("bf16 weights"), HasSubstr("int8 weights"),
                    HasSubstr("tok/s"), HasSubstr("times f32")));
}

TEST(Bench, CheckpointsStandBesideAPlainCopyAndLeaveNothing) {
  const TemporaryDirectory directory;
  const Finished finished = atoll(
      bench({"checkpoint", "--model=demo", "--rounds=1", "--dir=" + directory.path.string()}));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("load and verify"), HasSubstr("checkpoint.async: training waits"),
                    HasSubstr("a copy of the state in memory")));
  EXPECT_TRUE(fs::is_empty(directory.path));
}

TEST(Bench, WhatCannotBeMeasuredIsRefusedInALine) {
  expect_error({"ops", "--model=gpt3"}, "give one of gpt2-124m, llama-30m, demo");
  expect_error({"ops", "--tokens=100", "--context=64"}, "--tokens=100 is no multiple");
  expect_error({"ops", "--filter=convolution"}, "--filter=convolution is part of no op's name");
  expect_error({"ops", "--train.lr=1"}, "takes no settings of a recipe, and --train.lr=1 is one");
  expect_error({"tokenizer", "--text=/nowhere/at/all.txt"}, "/nowhere/at/all.txt");
  expect_error({"generate", "--model=nowhere"}, "there is no directory nowhere");
  expect_error({"generate", "--model=demo", "--tokens=2000"}, "need 2010 positions");
  expect_error({"generate", "--weights=int4"}, "int4");
  expect_error({"checkpoint", "--dir=/nowhere/at/all"}, "there is no directory /nowhere/at/all");
  expect_error({"nothing"}, "nothing");
}

TEST(Bench, AnEmptyTextIsRefused) {
  const TemporaryDirectory directory;
  write_file(directory.path / "empty.txt", "");
  expect_error({"tokenizer", "--text=" + (directory.path / "empty.txt").string()}, "is empty");
}

}  // namespace
}  // namespace atl::e2e
