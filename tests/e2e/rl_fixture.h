#pragma once

// What the tests of `atoll rl` by the program share.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "atoll/metrics/jsonl_sink.h"
#include "train_fixture.h"

namespace atl::e2e {

/// A model that has seen some sums, and the same sums as prompts with a reward program.
class Rl : public Train {
 protected:
  void SetUp() override {
    Train::SetUp();
    std::string texts, prompts;
    for (int a = 0; a < 8; ++a) {
      for (int b = 0; b < 8; ++b) {
        texts += fmt::format("{{\"text\": \"{}+{}={}\"}}\n", a, b, a + b);
        prompts += fmt::format("{{\"prompt\": \"{}+{}=\", \"answer\": \"{}\"}}\n", a, b, a + b);
      }
    }
    write_file(root_.path / "sums.jsonl", texts);
    write_file(root_.path / "prompts.jsonl", prompts);
    // The text decides the vocabulary.
    std::string of_base = read_file(recipe());
    const std::string size = "vocab_size = 300\n";
    of_base.erase(of_base.find(size), size.size());
    write_file(recipe(), of_base);
    trained("base", {"--data.text=" + path("sums.jsonl"), "--data.new_tokenizer=char",
                     "--data.special_tokens=<|endoftext|>", "--data.held_out=0",
                     "--train.context=16", "--train.dropout=0", "--train.batch_size=8",
                     "--train.micro_batch=8", "--train.steps=200"});
    write_file(rl_recipe(), fmt::format(R"([model]
from = "{0}/base"
[rl]
prompts = ["{0}/prompts.jsonl"]
rewards = ["answer"]
group = 4
max_tokens = 6
[train]
steps = 12
batch_size = 16
micro_batch = 4
context = 16
[optim]
lr = 0.001
[log]
every = 1
[checkpoint]
every = 2
)",
                                        root_.path.string()));
  }

  std::string rl_recipe() const { return (root_.path / "rl.toml").string(); }
  std::vector<std::string> rl_command(const std::string& name,
                                      const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"rl", rl_recipe(), "--run.dir=" + path(name),
                                          "--device.threads=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  /// Bytes that a run has written of what was answered.
  std::uintmax_t completions_size(const std::string& name) const {
    std::error_code none_yet;
    const auto size = std::filesystem::file_size(root_.path / name / "completions.jsonl", none_yet);
    return none_yet ? 0 : size;
  }

  /// What was answered, by step and sample, with what it earned; each may be there once.
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> completions(
      const std::string& name) const {
    std::map<std::pair<std::int64_t, std::int64_t>, std::string> all;
    for (metrics::Record& record : metrics::read_jsonl(root_.path / name / "completions.jsonl")) {
      const auto sample = std::get<std::int64_t>(record.values.at(1).second);
      record.wall_time_s = 0;
      EXPECT_TRUE(all.emplace(std::pair(record.step, sample), metrics::to_jsonl(record)).second)
          << "twice: " << metrics::to_jsonl(record);
    }
    return all;
  }

  /// Kills a run `kills` times, each after it has written some more, and lets it end. It must have
  /// taken the steps of an undisturbed one.
  void survives(int kills, const std::vector<std::string>& more) {
    const Finished whole = atoll(rl_command("whole", more));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    const RngStream draws(3, RngPurpose::kSynthetic);
    int killed = 0;
    for (int i = 0; i < kills; ++i) {
      Program program(rl_command("killed", more));
      const std::uintmax_t wanted =
          completions_size("killed") + draws.word(static_cast<std::uint64_t>(i)) % 4000;
      ASSERT_TRUE(soon([&] {
        return completions_size("killed") > wanted ||
               program.errors().find("finished;") != std::string::npos;
      })) << program.errors();
      program.send(SIGKILL);
      if (program.wait().exit_code == 128 + SIGKILL) ++killed;
      // Where it was too fast it begins again: what matters is the number of kills.
      if (std::filesystem::exists(checkpoint("killed", last_step_))) {
        expect_like_whole();
        std::filesystem::remove_all(root_.path / "killed");
      }
    }
    EXPECT_GT(killed, kills / 2);
    const Finished end = atoll(rl_command("killed", more));
    EXPECT_EQ(end.exit_code, 0) << end.err;
    expect_like_whole();
  }

  void expect_like_whole() const {
    EXPECT_EQ(tensors("killed", last_step_), tensors("whole", last_step_));
    EXPECT_EQ(completions("killed"), completions("whole"));
  }

  std::int64_t last_step_ = 12;
};

}  // namespace atl::e2e
