// Whole runs of reinforcement learning with a tiny model.

#include "atoll/rl/policy_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "atoll/comm/world.h"
#include "atoll/train/trainer_testing.h"

namespace atl::rl {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;
using train::TrainOutcome;

// A model that has seen some sums, and the same sums as prompts.
class PolicyRun : public train::TrainerTest {
 protected:
  void SetUp() override {
    TrainerTest::SetUp();
    std::string texts, prompts;
    for (int a = 0; a < 8; ++a) {
      for (int b = 0; b < 8; ++b) {
        texts += fmt::format("{{\"text\": \"{}+{}={}\"}}\n", a, b, a + b);
        prompts += fmt::format("{{\"prompt\": \"{}+{}=\", \"answer\": {}}}\n", a, b, a + b);
      }
    }
    write_file(root_ / "sums.jsonl", texts);
    write_file(root_ / "prompts.jsonl", prompts);
    train("base", {"--data.text=" + (root_ / "sums.jsonl").string(), "--data.new_tokenizer=char",
                   "--data.vocab_size", "--data.special_tokens=<|endoftext|>", "--data.held_out=0",
                   "--train.context=16", "--train.batch_size=8", "--train.micro_batch=8",
                   "--train.dropout=0", "--train.steps=200", "--optim.lr=0.01"});
    inline_model_ = false;
  }

  // What a run of rl is told beside the settings of all runs here.
  std::vector<std::string> settings_of(const std::vector<std::string>& overrides) const {
    std::vector<std::string> all = {"--data.text",
                                    "--model.from=" + (root_ / "base").string(),
                                    "--rl.prompts=" + (root_ / "prompts.jsonl").string(),
                                    "--rl.rewards=answer",
                                    "--rl.group=4",
                                    "--rl.max_tokens=6",
                                    "--train.context=16",
                                    "--train.batch_size=16",
                                    "--train.micro_batch=4",
                                    "--train.dropout=0",
                                    "--train.steps=4",
                                    "--optim.warmup_steps=0",
                                    "--optim.schedule=constant",
                                    "--optim.lr=0.001"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return all;
  }

  TrainOutcome learn(const std::string& name, const std::vector<std::string>& overrides = {},
                     int ranks = 1) {
    train::TrainConfig config;
    Settings settings = train::make_settings(config);
    configure(settings, name, settings_of(overrides));
    train::validate(config, settings);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Captured captured;
    TrainOutcome outcome;
    const auto body = [&](comm::World& world) {
      PolicySource source(config);
      train::Trainer trainer(config, settings, world, source);
      const TrainOutcome mine = trainer.run();
      if (world.rank() == 0) outcome = mine;
    };
    if (ranks == 1) {
      body(*comm::open_self());
    } else {
      comm::run_threads(ranks, {}, body);
    }
    return outcome;
  }

  // A value of each step's record.
  std::vector<double> metric(const std::string& name, const std::string& key) const {
    std::vector<double> values;
    for (const metrics::Record& record : metrics::read_jsonl(root_ / name / "metrics.jsonl")) {
      for (const auto& [found, value] : record.values) {
        if (found == key) values.push_back(std::get<double>(value));
      }
    }
    return values;
  }

  // What was answered, by step and sample, with what it earned.
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> completions(
      const std::string& name, const std::vector<std::string>& files = {"completions.jsonl"}) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::string> all;
    for (const std::string& file : files) {
      for (metrics::Record& record : metrics::read_jsonl(root_ / name / file)) {
        const auto sample = std::get<std::int64_t>(record.values.at(1).second);
        record.wall_time_s = 0;
        const bool is_new =
            all.emplace(std::pair(record.step, sample), metrics::to_jsonl(record)).second;
        EXPECT_TRUE(is_new) << metrics::to_jsonl(record);
      }
    }
    return all;
  }
};

TEST_F(PolicyRun, SamplerAndTrainerHaveTheSameBits) {
  learn("run");
  EXPECT_THAT(metric("run", "logprob_difference"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(metric("run", "ratio"), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(metric("run", "clipped"), Each(0));
  EXPECT_EQ(completions("run").size(), 64U);
  // Some answers are right, and some are not: without that nothing moves.
  EXPECT_THAT(metric("run", "reward"), Contains(AllOf(Gt(0), Lt(1))));
  EXPECT_THAT(metric("run", "grad_norm"), Contains(Gt(0)));
}

TEST_F(PolicyRun, AdaptersHaveThemToo) {
  learn("run", {"--lora.rank=4"});
  EXPECT_THAT(metric("run", "logprob_difference"), ElementsAre(0, 0, 0, 0));
}

TEST_F(PolicyRun, DivergenceBeginsAtZero) {
  learn("run", {"--rl.kl=0.1", "--train.steps=2"});
  const std::vector<double> kl = metric("run", "kl");
  ASSERT_EQ(kl.size(), 2U);
  EXPECT_EQ(kl[0], 0);
  EXPECT_GT(kl[1], 0);
}

TEST_F(PolicyRun, GoesOnWithTheSameBits) {
  for (const std::string ahead : {"--rl.async=0", "--rl.async=2"}) {
    const std::string name = ahead.substr(5);
    const TrainOutcome whole = learn("whole-" + name, {ahead, "--train.steps=6"});
    const std::string cut = "cut-" + name;
    for (const char* stop : {"1", "3", "4", "6"}) {
      learn(cut, {ahead, "--train.steps=6", std::string("--train.stop_after=") + stop});
    }
    EXPECT_EQ(tensors(root_ / cut / "checkpoints" / "step-00000006"), tensors(whole.checkpoint))
        << ahead;
    EXPECT_EQ(completions(cut), completions("whole-" + name)) << ahead;
    EXPECT_EQ(metric(cut, "reward"), metric("whole-" + name, "reward")) << ahead;
  }
  // Two steps old weights: the ratio is no longer one, but close to it.
  EXPECT_EQ(metric("whole-async=2", "logprob_difference")[0], 0);
  EXPECT_GT(metric("whole-async=2", "logprob_difference")[5], 0);
}

TEST_F(PolicyRun, RanksShareTheSteps) {
  const TrainOutcome alone = learn("alone", {"--train.exact=true"});
  for (const char* zero : {"--dp.zero=0", "--dp.zero=2"}) {
    const std::string name = std::string("two") + (zero + 5);
    const TrainOutcome two = learn(name, {"--train.exact=true", zero}, 2);
    EXPECT_EQ(read_file(two.checkpoint / "model-00001-of-00002.safetensors").empty(), false);
    EXPECT_EQ(completions(name, {"completions-0.jsonl", "completions-1.jsonl"}),
              completions("alone"))
        << zero;
    EXPECT_EQ(metric(name, "loss"), metric("alone", "loss")) << zero;
    EXPECT_EQ(metric(name, "reward"), metric("alone", "reward")) << zero;
  }
}

TEST_F(PolicyRun, EachPromptOncePerEpoch) {
  learn("run", {"--train.steps=16", "--optim.lr=0.0001"});  // 4 prompts a step of 64
  std::map<std::string, int> times;
  for (const metrics::Record& record : metrics::read_jsonl(root_ / "run" / "completions.jsonl")) {
    ++times[std::get<std::string>(record.values.at(0).second)];
  }
  EXPECT_EQ(times.size(), 64U);
  for (const auto& [prompt, count] : times) EXPECT_EQ(count, 4) << prompt;
}

TEST_F(PolicyRun, LearnsSums) {
  learn("run", {"--train.steps=80", "--optim.lr=0.003", "--rl.group=8", "--train.batch_size=64",
                "--train.micro_batch=64"});
  const std::vector<double> reward = metric("run", "reward");
  const auto mean = [&](std::size_t begin) {
    return std::accumulate(reward.begin() + static_cast<std::ptrdiff_t>(begin),
                           reward.begin() + static_cast<std::ptrdiff_t>(begin) + 10, 0.0) /
           10;
  };
  EXPECT_GT(mean(70), mean(0) + 0.1) << mean(0) << " " << mean(70);
}

TEST_F(PolicyRun, RefusesWhatCannotBe) {
  const auto refusal = [&](const std::vector<std::string>& overrides) {
    return error_of([&] { learn("refused", overrides); }, ErrorKind::kUser);
  };
  EXPECT_THAT(refusal({"--rl.rewards=taste"}), HasSubstr("none of answer, regex"));
  EXPECT_THAT(refusal({"--rl.rewards=regex"}), HasSubstr("needs rl.regex"));
  EXPECT_THAT(refusal({"--rl.rewards=regex", "--rl.regex=(7"}), HasSubstr("rl.regex: missing"));
  EXPECT_THAT(refusal({"--rl.regex=7"}), HasSubstr("add it to rl.rewards"));
  EXPECT_THAT(refusal({"--train.batch_size=18", "--train.micro_batch=2"}),
              HasSubstr("must be a multiple of rl.group"));
  EXPECT_THAT(refusal({"--train.context=4"}), HasSubstr("line 1: the prompt has 4 tokens"));
  EXPECT_THAT(refusal({"--parallel.tp=2"}), HasSubstr("parallel.tp"));
  write_file(root_ / "prompts.jsonl", "{\"prompt\": \"1+1=\"}\n");
  EXPECT_THAT(refusal({}), HasSubstr("line 1 has no \"answer\""));
}

}  // namespace
}  // namespace atl::rl
