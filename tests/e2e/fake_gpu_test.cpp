// Commands that run a model, on the GPU that the CPU plays: what they write is what the CPU writes.

#include "train_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Train;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FakeGpu : public Train {
 protected:
  void SetUp() override {
    Train::SetUp();
    trained("run");
  }
  std::string output(std::vector<std::string> arguments, const std::string& device) const {
    arguments.push_back("--device=" + device);
    const Finished finished = atoll(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    // Without the line that has the time.
    return finished.out.substr(0, finished.out.rfind(" in "));
  }
  void expect_same(const std::vector<std::string>& arguments) const {
    const std::string expected = output(arguments, "cpu");
    EXPECT_EQ(output(arguments, "fake_cuda"), expected);
    EXPECT_EQ(output(arguments, "auto"), expected) << "where no GPU can be used";
  }
};

TEST_F(FakeGpu, WritesTheTextOfTheCpu) {
  for (const char* weights : {"f32", "bf16", "int8"}) {
    expect_same({"generate", path("run"), "--prompt=the sea is", "--max-tokens=12", "--seed=3",
                 std::string("--weights=") + weights});
  }
  // Longer than the model can see at once.
  expect_same({"generate", path("run"), "--prompt=the sea", "--max-tokens=40", "--greedy"});
}

TEST_F(FakeGpu, HasTheLossOfTheCpu) {
  for (const char* weights : {"f32", "bf16", "int8"}) {
    expect_same({"eval", path("run"), "--max-tokens=200", std::string("--weights=") + weights});
  }
  expect_same({"eval", path("run"), "-n", "2", "--max-tokens=200"});
}

TEST_F(FakeGpu, AnswersATaskAsTheCpuDoes) {
  write_file(path("task.jsonl"),
             "{\"prompt\": \"the sea is\", \"choices\": [\" xqzj\", \" wide\"], \"answer\": 1}\n"
             "{\"prompt\": \"the sea\", \"answer\": \"is\"}\n");
  expect_same({"eval", path("run"), "--task", path("task.jsonl"), "--max-tokens=5"});
}

TEST_F(FakeGpu, WhatItCannotDoIsRefusedByName) {
  const auto refused = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"generate", path("run"), "--max-tokens=3"});
    const Finished finished = atoll(arguments);
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    return error_line(finished);
  };
  EXPECT_THAT(refused({"--device=fake_cuda", "--weights=w8a8", "--int8=vector"}),
              HasSubstr("--int8=vector chooses instructions of a CPU"));
  EXPECT_THAT(refused({"--device.index=1"}), HasSubstr("device.index (1, "));
  EXPECT_THAT(refused({"--device=tpu"}), HasSubstr("--device is tpu; it must be one of"));
  EXPECT_THAT(refused({"--cuda"}), HasSubstr("did you mean --device=cuda?"));
  trained("large", {"--model.hidden_size=128"});
  const auto error_with = [&](const std::string& mebibytes) {
    const Finished finished = atoll({"generate", path("large"), "--device=fake_cuda",
                                     "--device.fake_memory_mib=" + mebibytes, "--max-tokens=3"});
    EXPECT_EQ(finished.exit_code, 1) << finished.err;
    return error_line(finished);
  };
  // Less than the weights, and no more than these.
  EXPECT_THAT(error_with("1"),
              AllOf(HasSubstr("of memory for weights"), HasSubstr("(1.0 MiB may be used here)"),
                    HasSubstr("config.json")));
  EXPECT_THAT(error_with("2"),
              AllOf(HasSubstr("fake GPU refused"), HasSubstr("2.0 MiB installed")));
}

}  // namespace
}  // namespace atl
