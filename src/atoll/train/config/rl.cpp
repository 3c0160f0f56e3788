// rl.*: reinforcement learning with rewards that are checked, not judged.

#include <algorithm>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/train/config/groups.h"
#include "atoll/train/config/rules.h"

namespace atl::train {

namespace {

bool has_reward(const TrainConfig& config, const std::string& kind) {
  return std::ranges::find(config.rl.rewards, kind) != config.rl.rewards.end();
}

// Each reward that is asked for has what it is made by, and nothing is given that none reads.
void check_rewards(const TrainConfig& config, const Settings& s) {
  const RlSettings& rl = config.rl;
  if (!rl.is_given()) return;
  if (rl.rewards.empty()) {
    throw user_error(
        "rl.rewards is not set: say what is rewarded, e.g. --rl.rewards=answer where each row of "
        "{} "
        "has an \"answer\"",
        named(s, "rl.prompts"));
  }
  struct Kind {
    const char* name;
    const char* key;
    bool is_needed;
  };
  constexpr Kind kKinds[] = {{"answer", "rl.answer", false},
                             {"regex", "rl.regex", true},
                             {"schema", "rl.schema", true},
                             {"program", "rl.program", true}};
  for (const std::string& reward : rl.rewards) {
    const bool is_known =
        std::ranges::any_of(kKinds, [&](const Kind& kind) { return reward == kind.name; });
    if (!is_known) {
      throw user_error("{}: \"{}\" is none of answer, regex, schema, program",
                       named(s, "rl.rewards"), reward);
    }
    if (std::ranges::count(rl.rewards, reward) > 1) {
      throw user_error("{} names {} twice; give it a larger weight in rl.weights instead",
                       named(s, "rl.rewards"), reward);
    }
  }
  for (const Kind& kind : kKinds) {
    const bool is_asked = has_reward(config, kind.name);
    if (is_asked && kind.is_needed && !is_given(s, kind.key)) {
      throw user_error("{} has {}, which needs {}", named(s, "rl.rewards"), kind.name, kind.key);
    }
    if (!is_asked && is_given(s, kind.key)) {
      throw user_error("{} is for the reward {}; add it to rl.rewards, or leave {} out",
                       named(s, kind.key), kind.name, kind.key);
    }
  }
  if (!rl.weights.empty() && rl.weights.size() != rl.rewards.size()) {
    throw user_error("{} has {} and rl.rewards {}; give one weight for each reward",
                     named(s, "rl.weights"), rl.weights.size(), rl.rewards.size());
  }
}

// A step's sequences are whole groups.
void check_group(const TrainConfig& config, const Settings& s) {
  if (!config.rl.is_given() || config.train.batch_size % config.rl.group == 0) return;
  throw user_error(
      "{} must be a multiple of {}: a step has whole groups, train.batch_size / rl.group prompts; "
      "e.g. --train.batch_size={}",
      named(s, "train.batch_size"), named(s, "rl.group"), 8 * config.rl.group);
}

void check_data(const TrainConfig& config, const Settings& s) {
  if (!config.rl.is_given()) return;
  if (config.model.from.empty()) {
    throw user_error(
        "{} needs model.from: rewards teach a model that gives a right answer now and then; train "
        "one first, or name one that you have",
        named(s, "rl.prompts"));
  }
  for (const char* key : {"data.text", "data.shards", "data.weights", "data.tokenizer"}) {
    if (!is_given(s, key)) continue;
    throw user_error("{} is for `atoll train`: `atoll rl` learns from what the model answers to {}",
                     named(s, key), named(s, "rl.prompts"));
  }
}

}  // namespace

void add_rl(SettingRegistry& settings, TrainConfig& c) {
  RlSettings& rl = c.rl;
  constexpr const char* kParts = "the sampler needs whole layers on each rank";
  settings.group("rl",
                 "Reinforcement learning with rewards that are checked, which `atoll rl` runs: "
                 "docs/reinforcement-learning.md.");
  settings
      .add("rl.prompts", &rl.prompts,
           "JSONL files of prompts: \"prompt\" is a text or a list of messages, and whatever else "
           "a row has is for the rewards.")
      .with_scope(Scope::kIsland)
      .checked("", check_data)
      .checked("", check_rewards)
      .needs("device.kind", "cpu", "the sampler runs on a CPU so far")
      .needs("train.dtype", "f32", "sampler and trainer then compute the same bits")
      .needs("train.fp8", "off", "sampler and trainer then compute the same bits")
      .needs("sync.mode", "allreduce", "workers of servers have no sampler")
      .not_beside("parallel.tp", kParts)
      .not_beside("parallel.pp", kParts)
      .not_beside("parallel.cp", kParts)
      .not_beside("parallel.ep", kParts)
      .not_beside("parallel.layout", "auto", "set dp.zero by hand")
      .not_beside("dp.zero", Values{"3"},
                  "the sampler reads whole parameters; dp.zero=2 shares "
                  "all else")
      .not_beside("dp.compress", "a step's rewards are of the same parameters on all ranks")
      .not_beside("dp.balance", "which rank samples a prompt does not change during a run")
      .not_beside("offload.params", "the sampler reads whole parameters")
      .not_beside("launch.replicate", "start the same command again: it goes on by itself")
      .not_beside("island.coordinator", "islands have no sampler")
      .not_beside("train.dropout", "the sampler drops nothing out")
      .not_beside("lora.dropout", "the sampler drops nothing out")
      .not_beside("train.epochs", "give train.steps")
      .not_beside("train.early_stop", "there is no held-out text")
      .not_beside("checkpoint.keep_best", "there is no held-out text")
      .not_beside("eval.every", "there is no held-out text");
  settings
      .add("rl.group", &rl.group,
           "Completions of each prompt; an advantage is measured against the others of its group.",
           between(2, 1 << 12))
      .fixed()
      .only_with("rl.prompts", changed("prompts.jsonl"))
      .checked("Divides train.batch_size: a step has train.batch_size / rl.group prompts.",
               check_group);
  settings
      .add("rl.max_tokens", &rl.max_tokens,
           "Tokens of a completion at most; 0: as many as train.context leaves behind the prompt.",
           between(0, 1 << 20))
      .fixed()
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings.add("rl.slots", &rl.slots, "Completions that a rank samples together.", between(1, 1024))
      .with_scope(Scope::kHost)
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add("rl.rewards", &rl.rewards,
           "What is rewarded, each from 0 to 1 but for what a program gives: answer (the "
           "completion's answer is the row's \"answer\"), regex (the completion matches rl.regex), "
           "schema (it is JSON of rl.schema), program (what rl.program prints).")
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings.add("rl.weights", &rl.weights, "The weight of each of rl.rewards; empty: 1 each.")
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add(
          "rl.answer", &rl.answer,
          "Regular expression that finds the answer in a completion: its last match counts, the "
          "first group of it where it has one. Empty: what follows the last \"####\", as in GSM8K, "
          "else the whole completion. Numbers are compared as numbers: 1,000.0 is 1000.")
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add("rl.regex", &rl.regex,
           "Regular expression of the reward regex, found anywhere: ^ and $ "
           "are the ends of the completion.")
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings.add("rl.schema", &rl.schema, "File with the JSON schema of the reward schema.")
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add("rl.program", &rl.program,
           "Command of the reward program: it reads a line of JSON (the row, and \"completion\") "
           "from standard input and prints a number. It runs without network and with the limits "
           "below; one that breaks them, or fails, earns 0.")
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add("rl.program_s", &rl.program_s, "Seconds that it may take, of the clock and of a CPU.",
           between(0.1, 3600))
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add("rl.program_mib", &rl.program_mib,
           "MiB of address space that each of its processes may have; files that it writes may "
           "have as many.",
           between(16, 1 << 20))
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add("rl.program_processes", &rl.program_processes,
           "Processes and threads that it may have at once, where the system lets atoll count them "
           "apart from its user's others.",
           between(1, 1 << 12))
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add("rl.advantage", &rl.advantage,
           "normalised: a reward less the mean of its group, over the group's standard deviation "
           "(GRPO). centred: less the mean alone (Dr. GRPO).",
           one_of({"normalised", "centred"}))
      .fixed()
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add("rl.clip_low", &rl.clip_low,
           "A token whose probability has fallen below 1 - clip_low of what the sampler gave it is "
           "not pushed further down.",
           between(0, 1))
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add("rl.clip_high", &rl.clip_high,
           "A token whose probability has risen above 1 + clip_high of what the sampler gave it is "
           "not pushed further up.",
           between(0, 100))
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add("rl.kl", &rl.kl,
           "Weight of the KL divergence from the model that the run began with, by the estimator "
           "exp(d) - d - 1 (Schulman's k3); 0: none, and no copy of that model is kept.",
           between(0, 1000))
      .fixed()
      .only_with("rl.prompts", changed("prompts.jsonl"));
  settings
      .add("rl.async", &rl.async_steps,
           "Steps by which the sampler's weights may be older than the trainer's: while a step is "
           "taken, the batch of a later one is sampled. 0: each step samples from the weights that "
           "it trains.",
           between(0, 64))
      .fixed()
      .only_with("rl.prompts", changed("prompts.jsonl"));
}

}  // namespace atl::train
